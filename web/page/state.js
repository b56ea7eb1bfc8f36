/* What is planned: fields, the address that holds them, and the command line that they make. A field that is left empty is
 * left to the config, or to its default. */
const OWN = 'own';
const ASIDE = [['', 'default']];
const words = (...list) => ASIDE.concat(list.map((word) => [String(word), String(word)]));

/* id, label, where it stands, its key in a config, what it may be (a list: a choice; else a number), what it is at first. */
const FIELDS = [
  {id: 'model', label: 'Model', in: 'model', options: [], first: 'llama-3-8b'},
  {id: 'seq', label: 'Tokens of a sequence', in: 'model', key: 'train.seq_len', first: '4096'},
  {
    id: 'precision',
    label: 'Numbers',
    in: 'model',
    key: 'train.precision',
    options: words('bf16', 'fp16', 'fp32'),
    first: 'bf16',
  },
  {id: 'cluster', label: 'Devices', in: 'cluster', options: [], first: 'h100'},
  {id: 'devices', label: 'How many', in: 'cluster', first: '64'},
  {id: 'batch', label: 'Sequences of a step', in: 'batch', key: 'train.global_batch_size', first: '512'},
  {id: 'micro', label: 'of a micro-batch', in: 'batch', key: 'train.micro_batch_size', first: '1'},
  {id: 'tp', label: 'Tensor parallel', in: 'layout', key: 'parallel.tp', first: '1'},
  {id: 'cp', label: 'Context parallel', in: 'layout', key: 'parallel.cp', first: ''},
  {
    id: 'cp-kind',
    label: 'Tokens are shared by',
    in: 'layout',
    key: 'parallel.cp_kind',
    options: words('allgather', 'ring', 'ulysses'),
    first: '',
  },
  {id: 'ep', label: 'Expert parallel', in: 'layout', key: 'parallel.ep', first: ''},
  {id: 'pp', label: 'Pipeline stages', in: 'layout', key: 'parallel.pp', first: '1'},
  {id: 'zero', label: 'ZeRO', in: 'layout', key: 'parallel.zero', options: words(0, 1, 2, 3), first: '1'},
  {
    id: 'recompute',
    label: 'Recompute',
    in: 'layout',
    key: 'train.recompute',
    options: words('none', 'selective', 'full'),
    first: 'none',
  },
  {id: 'sp', label: 'Sequence parallel', in: 'layout', key: 'parallel.sp', options: words(false, true), first: ''},
  {
    id: 'schedule-kind',
    label: 'Schedule',
    in: 'layout',
    key: 'parallel.pp_schedule',
    options: words('afab', '1f1b', 'interleaved', 'zb-h1', 'zb-v'),
    first: '',
  },
  {id: 'virtual', label: 'Chunks of a stage', in: 'layout', key: 'parallel.virtual', first: ''},
  {
    id: 'offload',
    label: 'Offload to a file',
    in: 'layout',
    key: 'parallel.offload',
    options: words('none', 'optimizer', 'weights', 'all'),
    first: '',
  },
];
const TEXTS = ['more', 'config', 'machines'];
const LAYOUT = FIELDS.filter((f) => f.in === 'layout' || f.id === 'micro');

const valueOf = (id) => $(id).value.trim();

function makeFields() {
  for (const f of FIELDS) {
    const input = f.options
      ? el('select', {id: f.id}, ...f.options.map(([value, text]) => el('option', {value}, text)))
      : el('input', {id: f.id, type: 'number', min: 1, step: 1, inputmode: 'numeric', placeholder: 'default'});
    $(`${f.in}-fields`).append(el('label', {}, f.label, input));
  }
}

function setChoices(id, groups) {
  $(id).replaceChildren(
    ...Object.entries(groups).map(([label, values]) =>
      el('optgroup', {label}, ...values.map(([value, text]) => el('option', {value}, text))),
    ),
  );
}

function writeAddress() {
  const now = new URLSearchParams();
  for (const f of FIELDS) if (valueOf(f.id) !== f.first) now.set(f.id, valueOf(f.id));
  for (const id of TEXTS) if (valueOf(id)) now.set(id, $(id).value);
  history.replaceState(null, '', `#${now}`);
}

/* What the address asks for and no field can hold: [field, value]; until the next change. */
let refused = [];

function readAddress() {
  const now = new URLSearchParams(location.hash.slice(1));
  refused = [];
  for (const f of FIELDS) {
    const asked = now.get(f.id) ?? f.first;
    $(f.id).value = asked;
    if (asked && valueOf(f.id) !== asked) refused.push([f, asked]);
  }
  for (const id of TEXTS) $(id).value = now.get(id) ?? '';
  showOwn();
}

/* A field that says nothing though something was meant: the browser has no value for what is no number. Options would have
 * another answer than a plan. */
function troubleOfFields() {
  const option = furtherKeys().find((word) => word.startsWith('-'))?.split(' ')[0];
  if (option)
    return {
      message: `Further keys: '${option}' is no key`,
      hint: 'keys of a config stand there: optim.name=adafactor',
    };
  const typed = FIELDS.find((f) => $(f.id).validity?.badInput);
  const [field, value] = typed ? [typed] : (refused[0] ?? []);
  return (
    field && {
      message: `${field.label}: ${value === undefined ? 'what is there' : `'${value}'`} cannot be planned`,
      hint: field.options ? 'choose one of the list' : 'a whole number of 1 or more, or nothing for the default',
    }
  );
}

function showOwn() {
  $('config-field').hidden = valueOf('model') !== OWN;
  $('machines-field').hidden = valueOf('cluster') !== OWN;
  $('devices').disabled = valueOf('cluster') === OWN; /* the file says how many */
}

/* ---- command lines ---- */

/* A value may have spaces, as lists and mappings do: what begins another key is split off, or an option. */
const furtherKeys = () => valueOf('more').split(/\s+(?=[\w.]+=|--?[a-z])/i).filter(Boolean);

const filesNow = () => ({
  ...(valueOf('model') === OWN && {'config.yaml': $('config').value}),
  ...(valueOf('cluster') === OWN && {'cluster.yaml': $('machines').value}),
});

const modelName = () => (valueOf('model') === OWN ? 'config.yaml' : valueOf('model'));

function clusterName(devices = valueOf('devices')) {
  if (valueOf('cluster') === OWN) return 'cluster.yaml';
  return devices ? `${valueOf('cluster')}-${devices}` : valueOf('cluster');
}

/* Keys of the fields, but those of the left out ones. */
function keysNow(without = []) {
  return FIELDS.filter((f) => f.key && valueOf(f.id) && !without.includes(f))
    .map((f) => `${f.key}=${valueOf(f.id)}`)
    .concat(furtherKeys());
}

const planWords = () => ['plan', modelName(), `cluster=${clusterName()}`, ...keysNow()];
const searchWords = () => [
  'plan',
  'search',
  modelName(),
  `cluster=${clusterName()}`,
  ...keysNow(LAYOUT),
  '--most',
  '8',
];

/* The same work for each of so many devices: the batch of the plan grows with them. */
function scaledWords({ranks, dp, micro_batch, micro_batches}, devices) {
  const batch = (dp * micro_batch * micro_batches * devices) / ranks;
  const keys = keysNow(FIELDS.filter((f) => f.id === 'batch')).concat(`train.global_batch_size=${batch}`);
  return Number.isInteger(batch) && batch > 0 && ['plan', modelName(), `cluster=${clusterName(devices)}`, ...keys];
}

function takeLayout(l) {
  const values = {
    micro: l.micro_batch,
    tp: l.tp,
    cp: l.cp > 1 ? l.cp : '',
    'cp-kind': l.cp > 1 ? l.cp_kind : '',
    ep: l.ep > 1 ? l.ep : '',
    pp: l.pp,
    zero: l.zero,
    recompute: l.recompute,
    sp: l.sp,
    'schedule-kind': l.pp > 1 ? l.pp_schedule : '',
    virtual: l.virtual > 1 ? l.virtual : '',
    offload: l.offload !== 'none' ? l.offload : '',
  };
  for (const [id, value] of Object.entries(values)) $(id).value = String(value);
}
