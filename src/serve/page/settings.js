/* The panel of settings: the system prompt of the conversation, and for each column how its model writes. A field
 * that is left empty takes the server's default, which stands in it as a placeholder. */
const KNOBS = [
  {
    key: 'temperature',
    label: 'Temperature',
    min: 0,
    max: 2,
    step: 0.05,
    usual: 1,
    about: 'Lower is surer, higher more varied; 0 always takes the likeliest token.',
  },
  {
    key: 'top_p',
    label: 'Top-p',
    min: 0.05,
    max: 1,
    step: 0.01,
    usual: 1,
    about: 'Only the likeliest tokens that together have this probability.',
  },
  {
    key: 'top_k',
    label: 'Top-k',
    min: 0,
    max: 200,
    step: 1,
    usual: 0,
    about: 'Only so many of the likeliest tokens; 0 is all.',
  },
  {
    key: 'min_p',
    label: 'Min-p',
    min: 0,
    max: 1,
    step: 0.01,
    usual: 0,
    about: 'Only tokens at least this probable, relative to the likeliest.',
  },
  {
    key: 'repetition_penalty',
    label: 'Repetition penalty',
    min: 1,
    max: 2,
    step: 0.01,
    usual: 1,
    about: 'Makes what was written already less likely; 1 is none.',
  },
  {key: 'max_tokens', label: 'Most tokens', min: 1, step: 1, about: 'The answer ends there at the latest.'},
  {
    key: 'seed',
    label: 'Seed',
    min: 0,
    max: 2147483647,
    step: 1,
    about: 'The same seed and text give the same answer; empty: a new one each time.',
  },
];

/* What a model's entry in /v1/models tells of it; another server than ours says less. */
const canChat = (model) => model?.meta?.chat !== false;
const modeOf = (column, model) => (canChat(model) ? (column.mode ?? 'chat') : 'text');
const defaultsOf = (model, mode) => (mode === 'chat' ? (model?.meta?.sampling ?? {}) : {});

const settings = {
  column: 0,

  render(app) {
    this.column = Math.min(this.column, app.conv.columns.length - 1);
    const column = app.conv.columns[this.column];
    $('knobs').replaceChildren(
      this.systemPrompt(app),
      app.conv.columns.length > 1 ? this.tabs(app) : '',
      this.mode(app, column),
      ...KNOBS.map((knob) => this.knob(app, column, knob)),
      el(
        'button',
        {class: 'wide', onclick: () => this.reset(app, column), 'data-act': 'defaults'},
        'Back to the server’s defaults',
      ),
    );
  },

  systemPrompt(app) {
    const area = el('textarea', {
      id: 'system',
      rows: 4,
      dir: 'auto',
      placeholder: 'What the model is told before the conversation',
      oninput: () =>
        app.change(() => {
          app.conv.system = area.value;
        }),
    });
    area.value = app.conv.system;
    return el('label', {class: 'field'}, el('span', {}, 'System prompt'), area);
  },

  tabs(app) {
    const pick = (i) => {
      this.column = i;
      this.render(app);
      $('knobs').querySelector('[aria-pressed=true]').focus();
    };
    return el(
      'div',
      {class: 'tabs', role: 'group', 'aria-label': 'Settings of which model'},
      ...app.conv.columns.map((column, i) =>
        el('button', {'aria-pressed': String(i === this.column), onclick: () => pick(i)}, `${i + 1}: ${column.model}`),
      ),
    );
  },

  mode(app, column) {
    const model = app.model(column);
    const choose = (mode) => {
      app.change(() => {
        column.mode = mode;
      });
      this.render(app);
      $('knobs').querySelector(`[data-act=mode-${mode}]`).focus();
    };
    const option = (mode, label) =>
      el(
        'button',
        {
          'aria-pressed': String(modeOf(column, model) === mode),
          'data-act': `mode-${mode}`,
          disabled: mode === 'chat' && !canChat(model),
          onclick: () => choose(mode),
        },
        label,
      );
    return el(
      'div',
      {class: 'field'},
      el(
        'div',
        {class: 'tabs', role: 'group', 'aria-label': 'What the model does'},
        option('chat', 'Chat'),
        option('text', 'Continue the text'),
      ),
      canChat(model) ? null : el('small', {}, 'This model was not taught to chat: it goes on with what you write.'),
    );
  },

  knob(app, column, {key, label, min, max, step, usual, about}) {
    const model = app.model(column);
    const mode = modeOf(column, model);
    const usualHere = defaultsOf(model, mode)[key] ?? usual;
    const shown = usualHere ?? {max_tokens: mode === 'text' ? TEXT_TOKENS : 'to its end', seed: 'random'}[key];
    const top = key === 'max_tokens' ? model?.max_model_len : max;
    const number = el('input', {
      type: 'number',
      id: `knob-${key}`,
      min,
      max: top,
      step,
      inputmode: step < 1 ? 'decimal' : 'numeric',
      placeholder: shown,
      'aria-describedby': `about-${key}`,
      oninput: () => take(number),
    });
    const slider =
      max &&
      key !== 'seed' &&
      el('input', {
        type: 'range',
        min,
        max,
        step,
        'aria-label': label,
        tabindex: -1,
        oninput: () => {
          number.value = slider.value;
          take(slider);
        },
      });
    const take = (from) =>
      app.change(() => {
        const value = Number(number.value);
        const good = value >= min && value <= (top ?? Infinity) && (step < 1 || Number.isInteger(value));
        if (number.value !== '' && good) column.set[key] = value;
        else delete column.set[key];
        number.setAttribute('aria-invalid', String(!good && (number.value !== '' || number.validity.badInput)));
        showSlider(from);
      });
    const showSlider = (from) => {
      if (!slider) return;
      const value = column.set[key] ?? usualHere;
      if (from !== slider) slider.value = value;
      slider.style.setProperty('--at', (Math.min(max, value) - min) / (max - min));
      slider.classList.toggle('own', key in column.set);
    };
    number.value = column.set[key] ?? '';
    showSlider();
    return el(
      'div',
      {class: 'field knob'},
      el('label', {for: number.id}, label),
      number,
      slider,
      el('small', {id: `about-${key}`}, about),
    );
  },

  reset(app, column) {
    app.change(() => {
      column.set = {};
    });
    this.render(app);
    $('knobs').querySelector('[data-act=defaults]').focus();
  },
};

/* The completions of OpenAI's API end after 16 tokens where nothing is said: too few to read. */
const TEXT_TOKENS = 256;
