/* Pictures, drawn from the program's JSON. Each is an SVG of WIDTH units that grows with the page, and says the same in
 * words: in a legend, in titles, in notes. */
const WIDTH = 720;

const picture = (height, label, ...children) =>
  svg('svg', {viewBox: `0 0 ${WIDTH} ${height}`, role: 'img', 'aria-label': label}, ...children);
const say = (x, y, text, anchor = 'start') => svg('text', {x, y, 'text-anchor': anchor}, text);
const titled = (node, text) => (node.append(svg('title', {}, text)), node);

/* [{name, value, kind, text}] as a list with their colours. */
const legend = (parts) =>
  el(
    'ul',
    {class: 'legend'},
    ...parts.map((p) => el('li', {}, el('i', {class: p.kind}), `${p.name} `, el('b', {}, p.text))),
  );

/* ---- a treemap: squarified (Bruls, Huizing, van Wijk 2000) ---- */

/* The worst ratio of sides in a row of areas along a side. */
function worst(row, side) {
  const sum = row.reduce((a, b) => a + b, 0);
  return Math.max(
    ...row.map((area) => Math.max((side * side * area) / (sum * sum), (sum * sum) / (side * side * area))),
  );
}

/* Parts, largest first, each gets x, y, w, h in the box. */
function squarify(parts, box) {
  let rest = parts.filter((p) => p.value > 0).sort((a, b) => b.value - a.value);
  const unit = (box.w * box.h) / rest.reduce((sum, p) => sum + p.value, 0);
  const placed = [];
  while (rest.length) {
    const side = Math.min(box.w, box.h),
      areas = rest.map((p) => p.value * unit);
    let n = 1;
    while (n < rest.length && worst(areas.slice(0, n + 1), side) <= worst(areas.slice(0, n), side)) n++;
    const depth = areas.slice(0, n).reduce((a, b) => a + b, 0) / side;
    let at = 0;
    for (let i = 0; i < n; i++) {
      const length = areas[i] / depth;
      placed.push(
        box.w >= box.h
          ? {...rest[i], x: box.x, y: box.y + at, w: depth, h: length}
          : {...rest[i], x: box.x + at, y: box.y, w: length, h: depth},
      );
      at += length;
    }
    box = box.w >= box.h ? {...box, x: box.x + depth, w: box.w - depth} : {...box, y: box.y + depth, h: box.h - depth};
    rest = rest.slice(n);
  }
  return placed;
}

/* Of a GPU, process and snapshot lie in the memory of its host. */
const onHost = (m) => m.needed_bytes < m.peak_bytes + m.baseline_bytes;

function memoryParts({memory: m}, usable) {
  /* Gradients may come where activations were: then only what these need beyond them counts. */
  const kept = Math.min(m.saved_bytes ?? 0, m.activation_peak_bytes);
  const parts = [
    ['parameters', m.param_bytes, 'c1'],
    ['optimizer', m.optimizer_bytes, 'c2'],
    ['gradients', m.grad_bytes, 'c3'],
    ['activations kept', kept, 'c4'],
    ['scratch', m.activation_peak_bytes - kept, 'c5'],
    ...(onHost(m) ? [] : [['process', m.baseline_bytes, 'c6'], ['snapshot', m.snapshot_bytes, 'c6']]),
  ].map(([name, value, kind]) => ({name, value, kind, text: bytes(value)}));
  const free = usable - parts.reduce((sum, p) => sum + p.value, 0);
  return parts
    .concat({name: 'free', value: free, kind: 'free', text: bytes(Math.max(0, free))})
    .filter((p) => p.value > 0);
}

function drawTreemap(plan, usable) {
  const height = 260,
    parts = memoryParts(plan, usable);
  const boxes = squarify(parts, {x: 0, y: 0, w: WIDTH, h: height}).map((p) => {
    const g = svg(
      'g',
      {},
      svg('rect', {
        x: p.x + 1,
        y: p.y + 1,
        width: Math.max(0, p.w - 2),
        height: Math.max(0, p.h - 2),
        class: p.kind,
        rx: 3,
      }),
    );
    if (p.w > 20 + 8 * p.name.length && p.h > 52) {
      const lines = [say(p.x + 10, p.y + 22, p.name), say(p.x + 10, p.y + 44, p.text)];
      if (p.w < 20 + 12 * p.name.length) lines.forEach((line) => line.classList.add('tight'));
      g.append(...lines);
    }
    return titled(g, `${p.name}: ${p.text}`);
  });
  const map = picture(height, `Memory: ${parts.map((p) => `${p.name} ${p.text}`).join(', ')}`, ...boxes);
  map.classList.add('treemap');
  return [map, legend(parts)];
}

/* ---- curves ---- */

const frame = {left: 82, right: 12, top: 12, bottom: 30};

/* A frame with three lines across, each with its value. */
function axes(height, most, text) {
  const lines = [0, 0.5, 1].map((share) => {
    const y = height - frame.bottom - share * (height - frame.top - frame.bottom);
    return svg(
      'g',
      {class: 'axis'},
      svg('line', {x1: frame.left, x2: WIDTH - frame.right, y1: y, y2: y}),
      say(frame.left - 6, y + 4, text(share * most), 'end'),
    );
  });
  return lines;
}

function drawLive({memory: m, layout, live}, usable) {
  const height = 220,
    inner = height - frame.top - frame.bottom,
    across = WIDTH - frame.left - frame.right;
  const own = Math.max(m.activation_peak_bytes / (layout.frames || 1), ...live.bytes);
  const below = m.needed_bytes - own;
  const most = Math.max(usable, below + Math.max(...live.bytes)) * 1.02;
  const y = (v) => height - frame.bottom - (v / most) * inner;
  const x = (i) => frame.left + (i / live.bytes.length) * across;
  const steps = live.bytes
    .map((v, i) => `L${x(i).toFixed(1)} ${y(below + v).toFixed(1)}H${x(i + 1).toFixed(1)}`)
    .join('');
  const turn = frame.left + (live.ops_forward / live.ops) * across;
  return [
    picture(
      height,
      `Memory in use while each of ${live.ops} ops runs, at most ${bytes(below + Math.max(...live.bytes))}`,
      ...axes(height, most, bytes),
      svg('rect', {x: frame.left, y: y(below), width: across, height: y(0) - y(below), class: 'c1 pale'}),
      svg('path', {d: `M${frame.left} ${y(below)}${steps}V${y(below)}z`, class: 'c4'}),
      svg('line', {x1: turn, x2: turn, y1: frame.top, y2: height - frame.bottom, class: 'mark'}),
      svg('line', {x1: frame.left, x2: WIDTH - frame.right, y1: y(usable), y2: y(usable), class: 'limit'}),
      say((frame.left + turn) / 2, height - 10, 'forward', 'middle'),
      say((turn + WIDTH - frame.right) / 2, height - 10, 'backward', 'middle'),
    ),
    legend([
      {name: 'always there', kind: 'c1 pale', text: bytes(below)},
      {name: 'activations, at most', kind: 'c4', text: bytes(Math.max(...live.bytes))},
      {name: 'a device has', kind: 'limit', text: bytes(usable)},
    ]),
  ];
}

/* points: [{devices, value}], value null where the program refuses; now: the present number of devices. */
function drawScaling(points, now) {
  const height = 220,
    inner = height - frame.top - frame.bottom,
    across = WIDTH - frame.left - frame.right - 40;
  const most = Math.max(...points.map((p) => p.value ?? 0)) * 1.1;
  const x = (i) => frame.left + 20 + (points.length > 1 ? (i / (points.length - 1)) * across : across / 2);
  const y = (v) => height - frame.bottom - (v / most) * inner;
  const known = points.map((p, i) => ({...p, x: x(i)})).filter((p) => p.value != null);
  return picture(
    height,
    `Tokens a second of each device: ${known.map((p) => `${p.devices} devices ${digits(p.value)}`).join(', ')}`,
    ...axes(height, most, amount),
    svg('polyline', {points: known.map((p) => `${p.x},${y(p.value)}`).join(' '), class: 'curve'}),
    ...known.map((p) =>
      titled(
        svg('circle', {cx: p.x, cy: y(p.value), r: p.devices === now ? 6 : 4, class: p.fits ? 'dot' : 'dot large'}),
        `${p.devices} devices: ${digits(p.value)} tokens a second each${p.fits ? '' : '; does not fit'}`,
      ),
    ),
    ...points.map((p, i) => say(x(i), height - 10, String(p.devices), 'middle')),
  );
}

/* ---- bars ---- */

function timeParts(t) {
  const parts = Object.entries(t.classes)
    .filter(([name]) => name !== 'optimizer')
    .map(([name, ms], i) => [name, ms, `k${i % 8}`]);
  const classes = parts.reduce((sum, [, ms]) => sum + ms, 0);
  parts.push(
    ['beside collectives', Math.max(0, t.kernels_ms - classes), 'c6'],
    ['collectives among ops', t.collectives_among_ops_ms, 'w1'],
    ['waits for others', t.exposed_ms, 'w2'],
    ['optimizer', t.optimizer_ms, 'c2'],
    ['host', t.host_ms, 'w3'],
    ['bubble', t.bubble * (t.kernels_ms + t.collectives_among_ops_ms), 'free'], /* it is told as a share of these */
  );
  return parts
    .filter(([, ms]) => ms > t.step_ms * 1e-4)
    .map(([name, value, kind]) => ({name, value, kind, text: `${seconds(value)} ${percent(value / t.step_ms)}`}));
}

function drawTime(t) {
  const parts = timeParts(t),
    all = parts.reduce((sum, p) => sum + p.value, 0);
  let at = 0;
  const bars = parts.map((p) => {
    const width = (p.value / all) * WIDTH;
    const bar = titled(
      svg('rect', {x: at, y: 0, width: Math.max(0.5, width - 1), height: 36, class: p.kind}),
      `${p.name}: ${p.text}`,
    );
    at += width;
    return bar;
  });
  return [picture(36, `A step: ${parts.map((p) => `${p.name} ${p.text}`).join(', ')}`, ...bars), legend(parts)];
}

/* A line for each stage, a box for each piece of work. */
const WORK = {F: 'forward', B: 'backward', I: 'backward: inputs', W: 'backward: weights'};
function drawSchedule(s) {
  const line = Math.max(10, Math.min(26, 260 / s.stages)),
    height = s.stages * line + 4,
    left = 30;
  const x = (t) => left + (t / s.time) * (WIDTH - left);
  const boxes = s.stage.flatMap((stage, i) =>
    stage.items.map((item) => {
      const width = x(item.end) - x(item.begin);
      const g = svg(
        'g',
        {},
        svg('rect', {
          x: x(item.begin),
          y: i * line + 1,
          width: Math.max(0.5, width - 0.7),
          height: line - 2,
          class: `work${item.work}${item.chunk >= s.stages ? ' late' : ''}`,
        }),
      );
      if (width > 16 && line > 14) {
        const number = say(x(item.begin) + width / 2, i * line + line / 2 + 4, String(item.micro_batch + 1), 'middle');
        if (width < 28) number.classList.add('tight');
        g.append(number);
      }
      return titled(g, `stage ${i}, micro-batch ${item.micro_batch + 1}: ${WORK[item.work]}`);
    }),
  );
  const names = s.stage.map((_, i) => line > 9 && say(0, i * line + line / 2 + 4, String(i)));
  const kinds = [...new Set(s.stage.flatMap((stage) => stage.items.map((item) => item.work)))];
  return [
    picture(height, `${s.schedule}: ${s.stages} stages, ${s.micro_batches} micro-batches`, ...names, ...boxes),
    legend(kinds.map((k) => ({name: WORK[k], kind: `work${k}`, text: ''}))),
  ];
}

function drawBest(found, taken) {
  const row = ({layout: l, time: t, memory: m}) => {
    const name = [
      `dp ${l.dp}`,
      l.tp > 1 && `tp ${l.tp}`,
      l.cp > 1 && `cp ${l.cp} ${l.cp_kind}`,
      l.ep > 1 && `ep ${l.ep}`,
      l.pp > 1 && `pp ${l.pp} ${l.pp_schedule}`,
      l.zero && `ZeRO-${l.zero}`,
      `micro-batch ${l.micro_batch}`,
      l.recompute !== 'none' && `recompute ${l.recompute}`,
      l.offload !== 'none' && `offload ${l.offload}`,
    ];
    const text = name.filter(Boolean).join(', ');
    return el(
      'tr',
      {},
      el(
        'td',
        {},
        el('button', {type: 'button', title: 'Plan this layout', onclick: () => taken(l)}, text),
      ),
      ...[
        seconds(t.step_ms),
        digits(t.tok_per_s_per_device),
        percent(t.mfu),
        percent(t.bubble),
        bytes(m.needed_bytes),
      ].map((v) => el('td', {}, v)),
    );
  };
  const heads = ['layout', 'step', 'tokens/s each', 'MFU', 'bubble', 'memory'];
  return el(
    'table',
    {},
    el('thead', {}, el('tr', {}, ...heads.map((h) => el('th', {scope: 'col'}, h)))),
    el('tbody', {}, ...found.map(row)),
  );
}
