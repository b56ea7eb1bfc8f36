/* The page at work: what the user does to conversations, answers under way, the panes, the keys. */

/* ---- state, and what may be done to it ---- */

const app = {
  models: [],
  conv: null,
  running: new Map(), // answer -> {conv, abort}
  views: new Map(), // answer -> its view, where it is on screen
  asTokens: new Set(), // answers that are shown as tokens

  model: (column) => app.models.find((model) => model.id === column.model),
  keysOn: () => prefs.get('keys', true),
  busy: () => [...app.running.values()].some((job) => job.conv === app.conv),

  change(f) {
    f();
    prefs.set('last', {columns: app.conv.columns, system: app.conv.system});
    if (app.conv.root.kids.length) store.save(app.conv);
    drawStatus();
  },

  ask(parent, text) {
    const ask = addKid(parent, {text, kids: [], at: 0});
    app.conv.title ||= text.trim().split('\n')[0].slice(0, 60);
    app.answer(
      ask,
      app.conv.columns.map(() => null),
    );
  },

  /* The same message answered again by one column; what the other said stays. */
  retry({ask, reply, column}) {
    const answers = app.conv.columns.map((_, i) => (i === column ? null : (reply.answers[i] ?? null)));
    app.answer(ask, answers, column);
  },

  answer(ask, answers, only = null) {
    const {conv} = app;
    const reply = addKid(ask, {answers, kids: [], at: 0});
    conv.columns.forEach((column, i) => {
      if (only === null || only === i) reply.answers[i] = start(conv, ask, i, only !== null);
    });
    scroller.pinned = true;
    app.redraw();
    store.save(conv);
  },

  editAnswer({ask, reply, column, answer}, text) {
    const answers = reply.answers.slice();
    answers[column] = {...answer, text, tokens: [], edited: true, error: null};
    addKid(ask, {answers, kids: [], at: 0});
    app.change(() => {});
    app.redraw();
  },

  show(node, at) {
    node.at = at;
    app.change(() => {});
    app.redraw();
  },

  stop() {
    for (const job of app.running.values()) if (job.conv === app.conv) job.abort.abort();
  },

  open(conv) {
    app.conv = conv;
    scroller.pinned = true;
    app.redrawAll();
    if (narrow.matches) pane('side', false);
  },

  create() {
    const last = prefs.get('last', {});
    const columns = structuredClone(last.columns ?? [{model: '', set: {}}]);
    app.open(newConversation(columns.map(knownModel), last.system ?? ''));
    if (!touch.matches) $('input').focus(); // there it would open the keyboard
  },

  remove(conv) {
    app.running.forEach((job) => {
      if (job.conv === conv) job.abort.abort();
    });
    store.remove(conv);
    if (conv === app.conv) app.create();
    else drawList();
    toast('Deleted.', 'Undo', () => {
      store.save(conv);
      app.open(conv);
    });
  },

  compare() {
    const {columns} = app.conv;
    if (columns.length > 1) columns.pop();
    else
      columns.push({
        ...structuredClone(columns[0]),
        model: (app.models.find((model) => model.id !== columns[0].model) ?? {id: columns[0].model}).id,
      });
    app.change(() => {});
    app.redrawAll();
  },

  /* Of two columns the chosen one becomes the conversation. */
  keep(column) {
    const turnRound = (node) => {
      node.answers?.reverse();
      node.kids.forEach(turnRound);
    };
    if (column === 1) {
      turnRound(app.conv.root);
      app.conv.columns.reverse();
    }
    app.compare();
  },

  redraw() {
    drawModels();
    drawThread(app);
    drawList();
    app.drawSend();
    drawStatus();
    document.title = `${titleOf(app.conv)} – athanor`;
    scroller.follow();
  },

  redrawAll() {
    app.redraw();
    if (!$('panel').hidden) settings.render(app);
  },

  drawSend() {
    const busy = app.busy();
    const send = $('send');
    send.setAttribute('aria-label', busy ? 'Stop' : 'Send');
    send.title = busy ? 'Stop (Esc)' : 'Send (Enter)';
    send.disabled = !busy && !$('input').value.trim();
    setIcon(send, busy ? 'stop' : 'up');
  },
};

/* A model that is no longer served is replaced by the first. */
function knownModel(column) {
  return app.models.some((model) => model.id === column.model)
    ? column
    : {...column, model: app.models[0]?.id ?? column.model};
}

/* ---- an answer under way ---- */

function start(conv, ask, index, freshSeed) {
  const column = conv.columns[index];
  const mode = modeOf(column, app.model(column));
  const set = {...column.set}; // the column's may change while the answer is written
  const seed = freshSeed || set.seed === undefined ? Math.floor(Math.random() * 1e6) : set.seed;
  if (mode === 'text') set.max_tokens ??= TEXT_TOKENS;
  const answer = {
    model: column.model,
    mode,
    set: {...column.set},
    text: '',
    think: '',
    tokens: [],
    seed,
    finish: null,
    stats: null,
    error: null,
  };
  const job = {conv, abort: new AbortController(), began: performance.now(), first: 0, last: 0, speaker: new Speaker()};
  app.running.set(answer, job);
  const plan = {model: column.model, mode, messages: messagesFor(conv, index, ask), set: {...set, seed}, seed};
  run(answer, job, plan);
  return answer;
}

async function run(answer, job, plan) {
  try {
    const result = await streamAnswer(plan, job.abort.signal, (piece) => {
      job.last = performance.now();
      job.first ||= job.last;
      answer.text += piece.text;
      answer.think += piece.think;
      answer.tokens.push(...piece.tokens);
      changed(answer, job);
    });
    answer.finish = result.finish;
    measure(answer, job, result.usage);
    tellGone(null);
  } catch (error) {
    measure(answer, job, null);
    if (error.name === 'AbortError') answer.finish = 'stopped';
    else
      answer.error =
        error instanceof Failure
          ? {kind: error.kind, title: error.title, detail: error.detail}
          : {kind: 'failed', title: 'The answer could not be read.', detail: String(error.message)};
  }
  app.running.delete(answer);
  finished(answer, job);
}

function measure(answer, job, usage) {
  const n = usage?.completion_tokens ?? answer.tokens.length;
  const seconds = (job.last - job.first) / 1000;
  answer.stats = {
    n,
    prompt: usage?.prompt_tokens ?? null,
    first: Math.round(job.first - job.began),
    rate: n > 1 && seconds > 0 ? (n - 1) / seconds : null,
  };
}

/* What came since the last frame is drawn in one go; a page in the background has no frames. */
function changed(answer, job) {
  if (job.drawing) return;
  job.drawing = true;
  const draw = () => {
    job.drawing = false;
    const view = app.views.get(answer);
    if (!view || !app.running.has(answer)) return;
    view.update();
    if (app.conv.columns.length === 1) job.speaker.hear(answer.text, false);
    scroller.follow();
  };
  if (document.hidden) setTimeout(draw, 250);
  else requestAnimationFrame(draw);
}

function finished(answer, job) {
  if (store.all.has(job.conv.id)) store.save(job.conv);
  const view = app.views.get(answer);
  if (view) {
    view.update();
    if (!answer.error)
      job.speaker.hear(app.conv.columns.length > 1 ? `${answer.model}: ${answer.text}` : answer.text, true);
    scroller.follow();
  }
  app.drawSend();
  drawList();
  drawStatus();
}

/* ---- what stays in view ---- */

const scroller = {
  pinned: true,
  follow() {
    const node = $('scroll');
    if (this.pinned) node.scrollTop = node.scrollHeight;
    this.look();
  },
  look() {
    const node = $('scroll');
    const away = node.scrollHeight - node.scrollTop - node.clientHeight;
    $('latest').hidden = away < 120;
    return away;
  },
};

/* ---- panes ---- */

const touch = matchMedia('(pointer: coarse)');
const narrow = matchMedia('(max-width: 900px)');
const tight = matchMedia('(max-width: 1180px)');

/* A pane beside the conversation; over it where there is no room, and then nothing else can be reached. */
function pane(name, open) {
  const over = (name === 'side' ? narrow : tight).matches;
  const node = $(name);
  document.body.classList.toggle(`${name}-open`, open);
  node.hidden = !open;
  $('stage').inert = open && over;
  $('scrim').hidden = !(open && over);
  if (name === 'panel') {
    $('panel-open').setAttribute('aria-expanded', String(open));
    if (open) settings.render(app);
  } else if (!over) {
    prefs.set('side', open);
  }
}

function togglePane(name) {
  const open = $(name).hidden;
  pane(name, open);
  if (open) (name === 'panel' ? $(name) : $('new')).focus();
  else $(`${name}-open`).focus();
}

/* What Esc closes first; false: nothing is open. */
function closeSomething() {
  if (!$('tip').hidden && !app.busy()) return (hideTip(), true);
  for (const [name, wide] of [
    ['panel', false],
    ['side', !narrow.matches],
  ]) {
    if (!$(name).hidden && !wide) return (pane(name, false), $(`${name}-open`).focus(), true);
  }
  return false;
}

function drawModels() {
  const {columns} = app.conv;
  $('models').replaceChildren(
    ...columns.map((column, i) => {
      const select = el('select', {
        'aria-label': columns.length > 1 ? `Model ${i + 1}` : 'Model',
        onchange: () => {
          app.change(() => {
            column.model = select.value;
          });
          app.redrawAll();
          $('models').querySelectorAll('select')[i].focus();
        },
      });
      const ids = app.models.map((model) => model.id);
      if (!ids.includes(column.model)) ids.push(column.model);
      select.append(...ids.map((id) => el('option', {value: id}, id || 'no model')));
      select.value = column.model;
      return el('span', {class: 'pick'}, select);
    }),
  );
  $('compare').setAttribute('aria-pressed', String(columns.length > 1));
}

/* How full the context is; what the last answer says of it. */
function drawStatus() {
  const last = pathOf(app.conv).at(-1)?.reply?.answers[0];
  const length = app.model(app.conv.columns[0])?.max_model_len;
  const used = last?.stats?.prompt ? last.stats.prompt + last.stats.n : 0;
  $('status').textContent = used && length ? `${used.toLocaleString('en')} of ${count(length, 'token')} used` : '';
  $('status').classList.toggle('full', used > 0.9 * length);
}

/* ---- the list of conversations ---- */

function drawList() {
  const focused = document.activeElement?.closest?.('#list li')?.dataset.id;
  const act = document.activeElement?.dataset?.act;
  const busy = new Set([...app.running.values()].map((job) => job.conv));
  $('list').replaceChildren(
    ...store.latestFirst().map((conv) => {
      const open = el(
        'button',
        {
          class: 'title',
          dir: 'auto',
          'data-act': 'open',
          'aria-current': conv === app.conv && 'true',
          onclick: () => app.open(conv),
        },
        titleOf(conv),
      );
      return el(
        'li',
        {'data-id': conv.id, class: busy.has(conv) ? 'running' : null},
        open,
        el(
          'span',
          {class: 'tools'},
          iconButton('pencil', 'Rename', () => rename(conv, open), 'rename'),
          iconButton('download', 'Export as JSON', () =>
            download(`${titleOf(conv).replace(/[^\p{L}\p{N}]+/gu, '-')}.json`, exported(conv)),
          ),
          iconButton('trash', 'Delete', () => app.remove(conv)),
        ),
      );
    }),
  );
  if (focused) $('list').querySelector(`[data-id="${focused}"] [data-act=${act}]`)?.focus();
}

function rename(conv, title) {
  const done = (keep) => {
    if (keep && input.value.trim()) conv.title = input.value.trim();
    input.onblur = null;
    store.save(conv);
    app.redraw();
    $('list').querySelector(`[data-id="${conv.id}"] [data-act=rename]`)?.focus();
  };
  const input = el('input', {
    'aria-label': 'Title',
    dir: 'auto',
    onkeydown: (event) => {
      if (event.key !== 'Enter' && event.key !== 'Escape') return;
      event.preventDefault();
      event.stopPropagation();
      done(event.key === 'Enter');
    },
  });
  input.onblur = () => done(true);
  input.value = titleOf(conv);
  title.replaceWith(input);
  input.select();
}

/* ---- the server ---- */

async function connect() {
  try {
    app.models = await listModels();
    tellGone(null);
    app.conv.columns = app.conv.columns.map(knownModel);
  } catch (error) {
    if (error.kind === 'key') askForKey(app, connect);
    else tellGone(error);
  }
  app.redrawAll();
}

function tellGone(failure) {
  const notice = $('notice');
  notice.hidden = !failure;
  if (failure)
    notice.replaceChildren(
      el('strong', {}, failure.title),
      ` ${failure.detail ?? ''} `,
      el('button', {onclick: connect}, 'Try again'),
    );
}

function askForKey(_, then) {
  const dialog = $('login');
  $('login-form').onsubmit = async (event) => {
    event.preventDefault();
    apiKey.set($('login-key').value.trim(), $('login-keep').checked);
    $('login-key').value = '';
    dialog.close();
    then();
  };
  $('login-why').textContent = apiKey.get()
    ? 'The key that was given is not the right one.'
    : 'It was chosen when the server was started.';
  if (!dialog.open) dialog.showModal();
}

/* ---- colours ---- */

const THEMES = {
  system: ['system', 'Colours: as the system has them'],
  light: ['sun', 'Colours: light'],
  dark: ['moon', 'Colours: dark'],
};

function drawTheme() {
  const theme = prefs.get('theme', 'system');
  document.documentElement.dataset.theme = theme;
  setIcon($('theme'), THEMES[theme][0]);
  $('theme').setAttribute('aria-label', THEMES[theme][1]);
  $('theme').title = `${THEMES[theme][1]} (d)`;
}

function nextTheme() {
  const names = Object.keys(THEMES);
  prefs.set('theme', names[(names.indexOf(prefs.get('theme', 'system')) + 1) % names.length]);
  drawTheme();
}

/* ---- keys ---- */

const focusedAnswer = () => {
  const article = document.activeElement?.closest?.('.answer') ?? [...document.querySelectorAll('.answer')].at(-1);
  return article && [...app.views.values()].find((view) => view.node === article);
};
const press = (act) => {
  const article = document.activeElement?.closest?.('article') ?? [...document.querySelectorAll('.answer')].at(-1);
  article?.querySelector(`[data-act=${act}]:not(:disabled)`)?.click();
};

function walk(step) {
  const all = [...document.querySelectorAll('#thread article')];
  const at = all.indexOf(document.activeElement?.closest?.('article'));
  const to = all[at < 0 ? all.length - 1 : Math.min(all.length - 1, Math.max(0, at + step))];
  to?.focus();
  to?.scrollIntoView({block: 'nearest'});
}

/* What single letters do outside of text fields; r, e, c, t and the brackets mean the message that has the focus, or
 * the last answer. */
const KEYS = {
  '/': ['Write a message', () => $('input').focus()],
  n: ['New conversation', () => app.create()],
  j: ['Next message', () => walk(1)],
  k: ['Message before', () => walk(-1)],
  r: [
    'Answer again',
    () => {
      const view = focusedAnswer();
      if (view && !app.running.has(view.answer)) app.retry(view.place);
    },
  ],
  e: [
    'Edit',
    () =>
      document.activeElement?.closest?.('article')
        ? press('edit')
        : [...document.querySelectorAll('.message [data-act=edit]')].at(-1)?.click(),
  ],
  c: ['Copy', () => press('copy')],
  t: [
    'Token probabilities',
    () => {
      const view = focusedAnswer();
      if (view?.answer.tokens.length) view.toggleTokens();
    },
  ],
  '[': ['Version before', () => press('before')],
  ']': ['Version after', () => press('after')],
  m: ['Second model side by side', () => app.compare()],
  s: ['Settings', () => togglePane('panel')],
  l: ['List of conversations', () => togglePane('side')],
  d: ['Colours', nextTheme],
  '?': ['These shortcuts', showKeys],
};

function showKeys() {
  const row = (name, text) => [el('dt', {}, ...[name].flat().map((key) => el('kbd', {}, key))), el('dd', {}, text)];
  $('keys-list').replaceChildren(
    ...row('Enter', 'Send'),
    ...row(['Shift', 'Enter'], 'New line'),
    ...row('Esc', 'Stop the answer; close what is open'),
    ...row(['←', '→', '↑', '↓'], 'From token to token'),
    ...Object.entries(KEYS).flatMap(([key, [text]]) => row(key, text)),
  );
  $('keys-on').checked = app.keysOn();
  $('keys').showModal();
}

function onKey(event) {
  if (document.querySelector('dialog[open]') || event.isComposing) return;
  if (event.key === 'Escape') {
    if (!closeSomething() && app.busy()) app.stop();
    return;
  }
  const writes = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (writes || event.ctrlKey || event.altKey || event.metaKey || !app.keysOn()) return;
  const action = KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  action[1]();
}

/* ---- beginning ---- */

function send(event) {
  event.preventDefault();
  if (app.busy()) return app.stop();
  const input = $('input');
  if (!input.value.trim()) return;
  const last = pathOf(app.conv).at(-1);
  app.ask(last ? (last.reply ?? last.parent) : app.conv.root, input.value);
  input.value = '';
  fit(input);
  app.drawSend();
}

function listen() {
  for (const button of document.querySelectorAll('[data-icon]')) setIcon(button, button.dataset.icon);
  $('composer').onsubmit = send;
  $('input').oninput = () => {
    fit($('input'));
    app.drawSend();
  };
  $('input').onkeydown = (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!app.busy()) send(event);
  };
  $('new').onclick = () => app.create();
  $('compare').onclick = () => app.compare();
  $('theme').onclick = nextTheme;
  $('help').onclick = showKeys;
  $('export-all').onclick = () => download('athanor-conversations.json', store.latestFirst().map(exported));
  for (const name of ['side', 'panel']) {
    $(`${name}-open`).onclick = () => togglePane(name);
    $(`${name}-close`).onclick = () => togglePane(name);
  }
  $('scrim').onclick = closeSomething;
  $('latest').onclick = () => {
    scroller.pinned = true;
    scroller.follow();
  };
  $('scroll').onscroll = () => {
    scroller.pinned = scroller.look() < 40;
    hideTip();
  };
  $('keys-on').onchange = () => prefs.set('keys', $('keys-on').checked);
  document.querySelectorAll('dialog [data-close]').forEach((button) => {
    button.onclick = () => button.closest('dialog').close();
  });
  const sizes = new ResizeObserver(() => scroller.follow());
  [$('thread'), $('scroll')].forEach((node) => sizes.observe(node));
  document.addEventListener('keydown', onKey);
  document.addEventListener('visibilitychange', saveRunning);
  addEventListener('storage', onOtherTab);
  narrow.onchange = () => pane('side', !narrow.matches && prefs.get('side', true));
}

/* A page that is left keeps what was written until then. */
function saveRunning() {
  if (document.hidden) new Set([...app.running.values()].map((job) => job.conv)).forEach((conv) => store.save(conv));
}

function onOtherTab(event) {
  if (event.key === 'athanor.prefs') prefs.all = readJson('athanor.prefs') ?? {};
  if (!event.key?.startsWith(CHAT) || [...app.running.values()].some((job) => CHAT + job.conv.id === event.key)) return;
  store.read(event.key);
  if (event.key === CHAT + app.conv.id && store.all.has(app.conv.id)) app.open(store.all.get(app.conv.id));
  else drawList();
}

store.load();
listen();
drawTheme();
pane('side', !narrow.matches && prefs.get('side', true));
app.create();
connect();
