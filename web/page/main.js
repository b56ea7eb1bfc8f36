/* What is asked when. A change is answered at once by one worker: the plan, and the schedule. What takes longer comes after
 * it from another: why a plan does not fit, throughput over devices, the search. An answer to an older question is left. */
const MOST_DRAWN = 24; /* micro-batches of a schedule that still can be seen */
const SWEEP = [1, 2, 4, 8, 16, 32, 64, 128];

let first, second; /* the two workers */
let question = 0;
const devicesOf = new Map(); /* JSON of clusters, by command line and file */

/* null: the question was dropped before it was answered. */
async function askCluster(files) {
  const key = clusterName() + (files['cluster.yaml'] ?? '');
  const answer = devicesOf.get(key) ?? (await first.ask(['plan', 'cluster', clusterName(), '--json'], files));
  if (answer) devicesOf.set(key, answer);
  return answer;
}

const usableBytes = ({device: d}) => (d.memory_gib - d.reserved_gib) * 2 ** 30;

function quote(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function showTrouble(error) {
  $('trouble').hidden = !error;
  if (error)
    $('trouble').replaceChildren(el('p', {}, error.message), error.hint && el('p', {class: 'hint'}, error.hint));
}

/* ---- at once ---- */

function showFigures(plan, usable) {
  const {memory: m, layout: l, time: t} = plan;
  const need = m.needed_bytes;
  const figure = (name, value, note, kind) =>
    el('div', {class: kind}, el('dt', {}, name), el('dd', {}, value, el('small', {}, note)));
  const places = [`dp ${l.dp}`, l.tp > 1 && `tp ${l.tp}`, l.pp > 1 && `pp ${l.pp}`, l.zero && `ZeRO-${l.zero}`];
  $('figures').replaceChildren(
    figure(
      'Memory',
      bytes(need),
      `${m.fits ? 'fits' : 'does not fit'}: a device has ${bytes(usable)}`,
      m.fits ? 'good' : 'bad',
    ),
    ...(t
      ? [
          figure('Step', seconds(t.step_ms), `${l.micro_batches} micro-batches of ${l.micro_batch}`),
          figure('Tokens a second', amount(t.tok_per_s), `${digits(t.tok_per_s_per_device)} of each device`),
          figure('MFU', percent(t.mfu), `HFU ${percent(t.hfu)}`),
        ]
      : []),
    figure('Parameters', amount(plan.params.total), `${l.ranks} devices: ${places.filter(Boolean).join(', ')}`),
  );
}

function showPlan(plan, usable) {
  const {memory: m} = plan;
  showFigures(plan, usable);
  $('memory-note').textContent =
    `The device that needs most, of ${m.classes.length} ${m.classes.length > 1 ? 'kinds' : 'kind'}. Exact: what a run of this program takes.`;
  $('treemap').replaceChildren(...drawTreemap(plan, usable));
  $('live-note').textContent = `Op by op, ${plan.live.ops} of them.`;
  $('live').replaceChildren(...drawLive(plan, usable));
  $('time').replaceChildren(...(plan.time ? drawTime(plan.time) : []));
}

function scheduleWords({layout: l}) {
  const kind = l.pp_schedule ?? '1f1b';
  const many = l.pp > 1 ? Math.max(l.pp, MOST_DRAWN - (MOST_DRAWN % l.pp)) : MOST_DRAWN;
  const drawn = Math.min(l.micro_batches, many);
  const chunks = kind === 'interleaved' ? ['--virtual', String(l.virtual)] : [];
  return ['plan', 'schedule', kind, '--stages', String(l.pp), '--micro-batches', String(drawn), ...chunks, '--json'];
}

function showSchedule(answer, {layout: l}) {
  const s = answer.value?.schedules[0];
  $('schedule').replaceChildren(...(s ? drawSchedule(s) : []));
  if (!s) $('schedule-note').textContent = `${answer.error.message}. ${answer.error.hint}`;
  else {
    const part =
      s.micro_batches < l.micro_batches ? `The first ${s.micro_batches} of ${l.micro_batches} micro-batches. ` : '';
    const waits =
      l.pp > 1
        ? `With alike stages one waits ${percent(s.bubble_of_work * (s.micro_batches / l.micro_batches))} as long as it works.`
        : 'One stage: nothing waits for another.';
    $('schedule-note').textContent = part + waits;
  }
}

/* ---- later ---- */

async function showWhy(mine, files) {
  const answer = await second.run(planWords(), files);
  const [, message, , hint] = answer?.err.match(/error: (.*)(\n {2}where: .*)?\n {2}hint: (.*)/) ?? [];
  if (mine === question && message) showTrouble({message, hint});
}

/* Of a cluster of one's own the file says how many devices there are. */
async function showScaling(mine, files, {layout}, per) {
  const now = layout.ranks;
  const counts = [...new Set([...SWEEP.map((nodes) => nodes * per), now])]
    .filter((n) => valueOf('cluster') !== OWN && scaledWords(layout, n))
    .sort((a, b) => a - b);
  const points = [];
  if (!counts.length) $('scaling').replaceChildren();
  for (const devices of counts) {
    const answer = await second.ask([...scaledWords(layout, devices), '--json'], files);
    if (mine !== question || !answer) return;
    const plan = answer.value;
    points.push({devices, value: plan?.time?.tok_per_s_per_device ?? null, fits: plan?.memory.fits});
    if (points.some((p) => p.value != null)) $('scaling').replaceChildren(drawScaling(points, now));
  }
  $('scaling-note').textContent = counts.length
    ? 'Tokens a second of each device, with the same work for each: the batch grows with the devices.'
    : 'There is no other number of devices for this cluster and batch.';
}

async function showBest(mine, files) {
  $('best-note').textContent = 'Searching…';
  $('best').inert = true; /* it answers an older question */
  const answer = await second.ask([...searchWords(), '--json'], files);
  if (mine !== question || !answer) return;
  $('best').inert = false;
  const found = answer.value?.best ?? [];
  $('best').replaceChildren(...(found.length ? [drawBest(found, takeAndAsk)] : []));
  const v = answer.value;
  $('best-note').textContent = v
    ? `${v.tried} layouts: ${v.too_large} do not fit, ${v.impossible} cannot be made. The fastest of the others; a click takes one over.`
    : `${answer.error.message}. ${answer.error.hint}`;
}

/* What is refused has no answers. */
function clearAll() {
  for (const id of ['scaling', 'best', 'schedule', 'time', 'live', 'treemap', 'figures']) $(id).replaceChildren();
  for (const note of document.querySelectorAll('.note')) note.textContent = '';
}

/* ---- a change ---- */

function refuse(error) {
  showTrouble(error);
  clearAll();
}

/* Ends early where another question has come meanwhile. */
async function answerQuestion(mine) {
  const began = performance.now(),
    files = filesNow();
  const wrong = troubleOfFields();
  if (wrong) return refuse(wrong);
  const machines = await askCluster(files);
  if (mine !== question || !machines) return;
  const answer = machines.error ? machines : await first.ask([...planWords(), '--json'], files);
  if (mine !== question || !answer) return;
  if (answer.error) return refuse(answer.error);
  const plan = answer.value;
  showTrouble();
  showPlan(plan, usableBytes(machines.value));
  document.body.dataset.ms = performance.now() - began;
  const schedule = await first.ask(scheduleWords(plan));
  if (mine !== question || !schedule) return;
  showSchedule(schedule, plan);
  if (!plan.memory.fits) showWhy(mine, files);
  showScaling(mine, files, plan, machines.value.per_node);
  showBest(mine, files);
}

async function answerNow() {
  const mine = ++question;
  writeAddress();
  showOwn();
  $('command').textContent = ['athanor', ...planWords()].map(quote).join(' ');
  $('answers').setAttribute('aria-busy', 'true');
  first.drop();
  second.drop();
  await answerQuestion(mine);
  if (mine === question) $('answers').setAttribute('aria-busy', 'false');
}

/* The table goes when it is searched again, and the focus would go with it. */
function takeAndAsk(layout) {
  takeLayout(layout);
  $('figures').focus();
  answerNow();
}

/* ---- colours of the page ---- */

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $('theme').textContent = theme === 'dark' ? 'Light' : 'Dark';
}

/* Models and clusters are those of the program. */
async function startProgram() {
  const module = await compileProgram(),
    start = startWorker();
  first = new Runner(start(), module);
  second = new Runner(start(), module);
  const {value, error} = await first.ask(['config', 'presets', '--json']);
  if (error) throw new Error(error.message);
  const models = {};
  for (const p of value.presets) (models[p.model_type] ??= []).push([p.name, `${p.name} (${amount(p.params)})`]);
  setChoices('model', {...models, Another: [[OWN, 'a config of your own']]});
  const help = await first.run(['plan', 'cluster', '--help']);
  const names = help.out.match(/Presets: (.*)\. NAME/)[1].split(' ');
  setChoices('cluster', {Presets: names.map((name) => [name, name]), Another: [[OWN, 'a cluster of your own']]});
}

/* Says on the button, which tells screen readers, what has become of it. Pages that are neither on this machine nor on https have no clipboard: then the
 * command is selected, to be copied by hand. */
async function copyCommand() {
  let said = 'Copied';
  try {
    await navigator.clipboard.writeText($('command').textContent);
  } catch {
    getSelection().selectAllChildren($('command'));
    said = 'Not allowed here: the command is selected';
  }
  $('copy').textContent = said;
  setTimeout(() => ($('copy').textContent = 'Copy'), 3000);
}

async function begin() {
  makeFields();
  setTheme(matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
  $('theme').onclick = () => setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark');
  try {
    await startProgram();
  } catch (e) {
    $('loading').hidden = true;
    showTrouble({message: `the program did not start: ${e.message}`, hint: 'athanor plan says the same in a terminal'});
    $('answers').setAttribute('aria-busy', 'false');
    return;
  }
  $('loading').hidden = true;
  $('wishes').inert = false;
  readAddress();
  $('wishes').addEventListener('input', () => {
    refused = [];
    answerNow();
  });
  $('wishes').addEventListener('submit', (e) => e.preventDefault());
  $('copy').onclick = copyCommand;
  addEventListener('hashchange', () => {
    readAddress();
    answerNow();
  });
  await answerNow();
}

begin();
