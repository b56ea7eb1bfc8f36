/* The conversation on screen: a turn is a message and the answers to it, one a column. A view of an answer is
 * updated while it is written; all else is drawn anew when the conversation changes (drawThread). */

/* ---- answers ---- */

class AnswerView {
  constructor(app, place) {
    Object.assign(this, {app, place, answer: place.answer});
    const name =
      app.conv.columns.length > 1 || this.answer.model !== app.conv.columns[0].model ? nameOf(this.answer) : '';
    this.body = el('div', {class: 'body'});
    this.think = el(
      'details',
      {class: 'think', hidden: true},
      el('summary', {}, 'Thoughts'),
      el('div', {class: 'plain', dir: 'auto'}),
    );
    this.trouble = el('div', {class: 'trouble', role: 'alert', hidden: true});
    this.tools = el('div', {class: 'tools'});
    this.node = el(
      'article',
      {class: 'answer', tabindex: -1, 'data-column': place.column, 'aria-label': `Answer of ${this.answer.model}`},
      name && el('header', {}, name),
      this.think,
      this.body,
      this.trouble,
      this.tools,
    );
    this.asTokens = app.asTokens.has(this.answer);
    this.drawBody();
    this.drawTools();
    this.update();
  }

  /* Markdown, or the tokens, or the plain text of a model that goes on with a text. */
  drawBody() {
    this.markdown = null;
    this.tokens = null;
    if (this.asTokens) {
      this.tokens = new TokensView();
      this.body.replaceChildren(
        el('p', {class: 'legend', 'aria-hidden': 'true'}, 'sure', el('i'), 'surprising'),
        this.tokens.node,
      );
    } else if (this.answer.mode === 'text') {
      this.body.replaceChildren(el('div', {class: 'plain', dir: 'auto'}));
    } else {
      this.body.replaceChildren(el('div', {class: 'md'}));
      this.markdown = new MarkdownView(this.body.firstChild);
    }
  }

  update() {
    const {answer} = this;
    const running = this.app.running.has(answer);
    this.node.classList.toggle('running', running);
    this.node.classList.toggle('waiting', running && !answer.text && !answer.think);
    this.node.setAttribute('aria-busy', String(running));
    this.think.hidden = !answer.think;
    if (answer.think) this.think.lastChild.textContent = answer.think;
    if (this.tokens) this.tokens.update(answer.tokens);
    else if (this.markdown) this.markdown.update(answer.text);
    else this.body.firstChild.textContent = answer.text;
    if (running) return;
    this.markdown?.finish();
    this.drawTools();
    this.drawTrouble();
  }

  drawTrouble() {
    const {error} = this.answer;
    this.trouble.hidden = !error;
    if (!error) return;
    const again =
      error.kind === 'key'
        ? ['Enter the key', () => askForKey(this.app, () => this.app.retry(this.place))]
        : ['Try again', () => this.app.retry(this.place)];
    this.trouble.replaceChildren(
      el('strong', {}, error.title),
      el('p', {dir: 'auto'}, error.detail),
      el('button', {onclick: again[1], 'data-act': 'again'}, again[0]),
    );
  }

  drawTools() {
    const {app, place, answer} = this;
    if (app.running.has(answer)) return this.tools.replaceChildren();
    const label = (text, key) => (app.keysOn() ? `${text} (${key})` : text);
    const copy = iconButton('copy', label('Copy', 'c'), () => copyText(answer.text, copy));
    const tokens = iconButton('tokens', label('Token probabilities', 't'), () => this.toggleTokens());
    tokens.setAttribute('aria-pressed', String(this.asTokens));
    this.tools.replaceChildren(
      ...versions(app, place.ask, 'answer'),
      ...[
        answer.text && copy,
        !answer.error && iconButton('retry', label('Answer again', 'r'), () => app.retry(place)),
        answer.text &&
          iconButton(
            'pencil',
            'Edit the answer',
            () => editText(app, this.body, answer.text, (text) => app.editAnswer(place, text)),
            'edit',
          ),
        answer.tokens.length > 0 && tokens,
        app.conv.columns.length > 1 && iconButton('keep', 'Go on with this model alone', () => app.keep(place.column)),
        el('span', {class: 'facts'}, facts(answer)),
      ].filter(Boolean),
    );
  }

  toggleTokens() {
    this.asTokens = !this.asTokens;
    if (this.asTokens) this.app.asTokens.add(this.answer);
    else this.app.asTokens.delete(this.answer);
    hideTip();
    this.drawBody();
    this.update();
    if (this.asTokens) this.tokens.node.focus();
    else this.tools.querySelector('[data-act=tokens]')?.focus();
  }
}

/* The model, and what was not its default: two columns may differ in that alone. */
function nameOf({model, set}) {
  const own = KNOBS.filter(({key}) => set?.[key] !== undefined).map(
    ({key, label}) => `${label.toLowerCase()} ${set[key]}`,
  );
  return [model, ...own].join(', ');
}

/* "128 tokens · 41 tokens/s · first after 0.21 s · seed 7" */
function facts(answer) {
  const {stats} = answer;
  if (!stats?.n) return answer.edited ? 'edited' : '';
  const parts = [count(stats.n, 'token')];
  if (stats.rate)
    parts.push(`${stats.rate.toLocaleString('en', {maximumFractionDigits: stats.rate < 10 ? 1 : 0})} tokens/s`);
  parts.push(`first after ${(stats.first / 1000).toFixed(2)} s`, `seed ${answer.seed}`);
  if (answer.finish === 'length') parts.push('cut at the limit of tokens');
  if (answer.finish === 'stopped') parts.push('stopped');
  if (answer.edited) parts.push('edited');
  return parts.map((part) => part.replaceAll(' ', '\u00a0')).join(' · ');
}

/* ‹ 2 / 3 ›: which of the versions is shown. */
function versions(app, node, what) {
  const n = node.kids.length;
  if (n < 2) return [];
  const step = (by) => app.show(node, node.at + by);
  const left = iconButton('left', `Version of the ${what} before`, () => step(-1), 'before');
  const right = iconButton('right', `Version of the ${what} after`, () => step(1), 'after');
  left.disabled = node.at === 0;
  right.disabled = node.at === n - 1;
  return [
    el(
      'span',
      {class: 'versions', role: 'group', 'aria-label': `Version ${node.at + 1} of ${n}`},
      left,
      `${node.at + 1} / ${n}`,
      right,
    ),
  ];
}

/* ---- messages ---- */

function messageNode(app, {parent, ask}) {
  const text = el('div', {class: 'bubble', dir: 'auto'}, ask.text);
  const copy = iconButton('copy', 'Copy', () => copyText(ask.text, copy));
  const edit = iconButton(
    'pencil',
    'Edit the message, and go on from there',
    () => editText(app, text, ask.text, (fresh) => app.ask(parent, fresh)),
    'edit',
  );
  return el(
    'article',
    {class: 'message', tabindex: -1, 'aria-label': 'Your message'},
    text,
    el('div', {class: 'tools'}, ...versions(app, parent, 'message'), copy, edit),
  );
}

/* Puts a field in the place of a node; Esc leaves all as it was. */
function editText(app, node, text, done) {
  const area = el('textarea', {
    dir: 'auto',
    'aria-label': 'Edit',
    oninput: () => fit(area),
    onkeydown: (event) => {
      if (event.key === 'Escape') {
        event.stopPropagation();
        close();
      }
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        save();
      }
    },
  });
  const close = () => {
    const edit = form.parentNode.querySelector('[data-act=edit]');
    form.replaceWith(node);
    edit?.focus();
  };
  const save = () => (area.value.trim() && area.value !== text ? done(area.value) : close());
  const form = el(
    'div',
    {class: 'edit'},
    area,
    el(
      'div',
      {class: 'actions'},
      el('button', {onclick: close}, 'Cancel'),
      el('button', {class: 'main', onclick: save}, 'Save'),
    ),
  );
  area.value = text;
  node.replaceWith(form);
  fit(area);
  area.focus();
}

/* As high as its text. */
function fit(area) {
  area.style.height = 'auto';
  area.style.height = `${area.scrollHeight + 2}px`;
}

/* ---- the thread ---- */

const STARTERS = [
  'Why is the sky blue?',
  'Tell me a story about a lighthouse',
  'Write a function that reverses a list',
];

function emptyThread(app) {
  const column = app.conv.columns[0];
  const chat = modeOf(column, app.model(column)) === 'chat';
  const starter = (text) =>
    el(
      'button',
      {
        onclick: () => {
          $('input').value = text;
          fit($('input'));
          $('input').focus();
          app.drawSend();
        },
      },
      text,
    );
  return el(
    'div',
    {class: 'empty'},
    el('h1', {}, column.model || 'No model yet'),
    el(
      'p',
      {},
      chat
        ? 'Ask it something. What you write stays between this browser and the server it came from.'
        : 'This model continues texts: write a beginning.',
    ),
    chat && el('div', {class: 'starters'}, ...STARTERS.map(starter)),
    app.keysOn() &&
      el(
        'p',
        {class: 'hint'},
        el('kbd', {}, 'Enter'),
        ' sends, ',
        el('kbd', {}, 'Shift'),
        ' ',
        el('kbd', {}, 'Enter'),
        ' begins a line, ',
        el('kbd', {}, '?'),
        ' shows all keys',
      ),
  );
}

function drawThread(app) {
  const focused = focusPlace();
  app.views.clear();
  hideTip();
  const path = pathOf(app.conv);
  const thread = $('thread');
  thread.className = app.conv.columns.length > 1 ? 'pair' : '';
  thread.replaceChildren(
    ...path.map((step, turn) =>
      el('section', {class: 'turn', 'data-turn': turn}, messageNode(app, step), answersNode(app, step)),
    ),
  );
  if (!path.length) thread.append(emptyThread(app));
  restoreFocus(focused);
}

function answersNode(app, {ask, reply}) {
  const answers = (reply?.answers ?? []).slice(0, app.conv.columns.length);
  const nodes = answers.map((answer, column) => {
    if (!answer) return null;
    const view = new AnswerView(app, {ask, reply, column, answer});
    app.views.set(answer, view);
    return view.node;
  });
  return el('div', {class: 'answers'}, ...nodes);
}

/* A button that is drawn anew keeps the focus. */
function focusPlace() {
  const at = document.activeElement;
  const act = at?.dataset?.act;
  if (!act) return null;
  return {
    act,
    turn: at.closest('[data-turn]')?.dataset.turn,
    column: at.closest('[data-column]')?.dataset.column,
    mine: !!at.closest('.message'),
  };
}

function restoreFocus(place) {
  if (!place?.turn) return;
  const turn = $('thread').querySelector(`[data-turn="${place.turn}"]`);
  const article = turn?.querySelector(place.mine ? '.message' : `[data-column="${place.column}"]`);
  const button = article?.querySelector(`[data-act=${place.act}]`);
  (button?.disabled ? article.querySelector('.versions button:not(:disabled)') : (button ?? article))?.focus();
}
