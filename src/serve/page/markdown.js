/* Markdown to nodes, as models write it: headings, lists, tables, quotes, code, emphasis, links. What is no Markdown
 * stays text, HTML too. Text is added at its end while it streams: of the blocks made before only the last is made
 * anew. Every search that fails is remembered, so that hostile text costs no more than its length times MAX_DEPTH; and
 * what nobody writes by hand stays text, because browsers need long to lay out thousands of marks in one line. */
const MAX_DEPTH = 8;
const MAX_PARAGRAPH = 10000; // characters
const MAX_CELLS = 100; // in a row

/* ---- inline ---- */

const safeUrl = (text) => {
  try {
    const url = new URL(text);
    return url.protocol === 'https:' || url.protocol === 'http:' ? url.href : null;
  } catch {
    return null;
  }
};

const link = (url, ...children) =>
  el('a', {href: url, rel: 'noopener noreferrer nofollow', target: '_blank', title: url}, ...children);

/* Each takes the text, the place of the mark, and the marks that were searched in vain; gives [node, end] or null. */
const INLINE = {
  '\\': (s, i) => (/[!-/:-@[-`{-~]/.test(s[i + 1] ?? '') ? [s[i + 1], i + 2] : null),
  '`': (s, i, dead) => {
    const fence = s.slice(i).match(/^`+/)[0];
    const end = find(s, fence, i + fence.length, dead);
    if (end < 0) return [fence, i + fence.length];
    return [el('code', {dir: 'ltr'}, s.slice(i + fence.length, end).replace(/^ (.*) $/, '$1')), end + fence.length];
  },
  '!': (s, i, dead, depth) => (s[i + 1] === '[' ? INLINE['['](s, i + 1, dead, depth) : null),
  '[': (s, i, dead, depth) => {
    const middle = find(s, ']', i, dead);
    const end = middle < 0 || s[middle + 1] !== '(' ? -1 : find(s, ')', middle, dead);
    if (end < 0) return null;
    const url = safeUrl(
      s
        .slice(middle + 2, end)
        .trim()
        .split(/\s/)[0],
    );
    return url ? [link(url, ...inline(s.slice(i + 1, middle), depth + 1)), end + 1] : null;
  },
  '<': (s, i) => autolink(s, i + 1, /^<(https?:[^\s<>]{1,2000})>/.exec(s.slice(i, i + 2010))),
  h: (s, i) =>
    /\w/.test(s[i - 1] ?? '') ? null : autolink(s, i, /^(https?:\/\/[^\s<>"`|]{1,2000})/.exec(s.slice(i, i + 2010))),
  '*': (s, i, dead, depth) => emphasis(s, i, dead, depth),
  _: (s, i, dead, depth) => (/[\p{L}\p{N}]/u.test(s[i - 1] ?? '') ? null : emphasis(s, i, dead, depth)),
  '~': (s, i, dead, depth) => (s[i + 1] === '~' ? emphasis(s, i, dead, depth) : null),
  '\n': () => [el('br'), null],
};

function find(s, mark, from, dead) {
  if (from >= (dead[mark] ?? Infinity)) return -1;
  const at = s.indexOf(mark, from);
  if (at < 0) dead[mark] = from;
  return at;
}

/* A bare address does not end in what closes the sentence around it. */
function autolink(s, at, match) {
  if (!match) return null;
  const bare = s[at - 1] !== '<';
  const text = bare
    ? match[1].replace(/[.,;:!?'*_)\]]+$/, (tail) => (tail.startsWith(')') && match[1].includes('(') ? ')' : ''))
    : match[1];
  const url = safeUrl(text);
  return url ? [link(url, text), at + text.length + (bare ? 0 : 1)] : null;
}

function emphasis(s, i, dead, depth) {
  const mark = s[i + 1] === s[i] ? s[i] + s[i] : s[i];
  const from = i + mark.length;
  if (/\s|^$/.test(s[from] ?? '')) return [mark, from];
  const end = closing(s, mark, from, dead);
  if (end < 0) return [mark, from];
  const tag = mark === '~~' ? 'del' : mark.length === 2 ? 'strong' : 'em';
  return [el(tag, {}, ...inline(s.slice(from, end), depth + 1)), end + mark.length];
}

function closing(s, mark, from, dead) {
  for (let at = from; (at = find(s, mark, at, dead)) >= 0; at += mark.length) {
    if (mark.length === 2 && s[at + 2] === mark[0] && s[at + 3] !== mark[0]) at++; // **a *b***
    if (at === from || /\s/.test(s[at - 1]) || s[at - 1] === '\\') continue;
    if (mark.length === 1 && (s[at + 1] === mark || s[at - 1] === mark)) {
      at++;
      continue;
    }
    if (mark[0] === '_' && /[\p{L}\p{N}]/u.test(s[at + mark.length] ?? '')) continue;
    return at;
  }
  if (from < (dead[mark] ?? Infinity)) dead[mark] = from;
  return -1;
}

function inline(s, depth = 0) {
  if (depth > MAX_DEPTH || s.length > MAX_PARAGRAPH) return [s];
  const nodes = [];
  const dead = {};
  let plain = '';
  for (let i = 0; i < s.length;) {
    const found = INLINE[s[i]]?.(s, i, dead, depth);
    if (!found) {
      plain += s[i++];
    } else if (typeof found[0] === 'string') {
      plain += found[0];
      i = found[1];
    } else {
      if (plain) nodes.push(plain);
      plain = '';
      nodes.push(found[0]);
      i = found[1] ?? i + 1;
    }
  }
  if (plain) nodes.push(plain);
  return nodes;
}

/* ---- blocks ---- */

const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?: (.*))?$/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: +|$)/;
const TABLE_RULE = /^\|?\s*:?-+:?(?:\s*\|\s*:?-+:?)*\s*\|?$/;

const startsBlock = (line) =>
  FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);
const isTable = (lines, at) =>
  lines[at].includes('|') &&
  at + 1 < lines.length &&
  lines[at + 1].includes('-') &&
  TABLE_RULE.test(lines[at + 1].trim()) &&
  cells(lines[at]).length === cells(lines[at + 1]).length &&
  cells(lines[at]).length <= MAX_CELLS;

/* Each reads lines from `at` on and gives {node, end}, or null where it is not its kind. */
const BLOCKS = [
  function code(lines, at) {
    const open = FENCE.exec(lines[at]);
    if (!open) return null;
    let end = at + 1;
    while (end < lines.length && !isClosing(lines[end], open[2])) end++;
    const indent = new RegExp(`^ {0,${open[1].length}}`);
    const text = lines
      .slice(at + 1, end)
      .map((line) => line.replace(indent, ''))
      .join('\n');
    return {node: codeBlock(text, open[3].trim().split(/\s/)[0]), end: end + 1};
  },
  function heading(lines, at, depth) {
    const match = HEADING.exec(lines[at]);
    return (
      match && {
        node: el(
          `h${Math.min(6, match[1].length + 2)}`,
          {dir: 'auto'},
          ...inline((match[2] ?? '').trim().replace(/ #+$/, ''), depth),
        ),
        end: at + 1,
      }
    );
  },
  (lines, at) => (RULE.test(lines[at]) ? {node: el('hr'), end: at + 1} : null),
  function quote(lines, at, depth) {
    if (!QUOTE.test(lines[at])) return null;
    let end = at;
    while (end < lines.length && (QUOTE.test(lines[end]) || (lines[end].trim() && !startsBlock(lines[end])))) end++;
    const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ''));
    return {node: el('blockquote', {dir: 'auto'}, ...blocks(inner, depth + 1)), end};
  },
  list,
  table,
  function paragraph(lines, at, depth) {
    let end = at + 1;
    while (end < lines.length && lines[end].trim() && !startsBlock(lines[end]) && !isTable(lines, end)) end++;
    const text = lines
      .slice(at, end)
      .map((line) => line.trim())
      .join('\n');
    return {node: el('p', {dir: 'auto'}, ...inline(text, depth)), end};
  },
];

const isClosing = (line, fence) => {
  const text = line.trim();
  return text.length >= fence.length && text === fence[0].repeat(text.length);
};

/* Comments, strings, numbers and words of code, told apart well enough to read it by: no language is parsed. */
const WORDS =
  'and as assert async await bool break case catch char class const continue def default del do double elif ' +
  'else end enum except export extends extern False false finally float fn for from func function global if impl import in ' +
  'int interface is lambda let local long loop match mod mut namespace new nil None not null or package pass private ' +
  'protected pub public raise return self short signed sizeof static str string struct super switch template then this ' +
  'throw trait True true try type typedef typename union unsigned use using var void when where while with yield';
const NOTES = [
  ['#.*', /^(py|python3?|sh|bash|shell|zsh|rb|ruby|ya?ml|toml|r|perl|make(file)?|dockerfile|cmake|conf|ini)$/],
  ['--.*|/\\*[^]*?(?:\\*/|$)', /^(sql|lua|haskell|hs|elm|ada)$/],
  ['//.*|/\\*[^]*?(?:\\*/|$)', /./],
];

function painter(language) {
  const note = NOTES.find(([, names]) => names.test(language.toLowerCase()))[0];
  return new RegExp(
    `(?<note>${note})|` +
      '(?<string>"""[^]*?(?:"""|$)|"(?:[^"\\\\\\n]|\\\\.)*"?|\'(?:[^\'\\\\\\n]|\\\\.)*\'|`(?:[^`\\\\]|\\\\.)*`)|' +
      `(?<number>\\b\\d[\\w.]*)|\\b(?<word>${WORDS.replaceAll(' ', '|')})\\b`,
    'g',
  );
}

function painted(text, language) {
  if (!language || text.length > 50000 || /^(text|txt|plain|console|output)/i.test(language)) return [text];
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(painter(language))) {
    const kind = Object.keys(match.groups).find((name) => match.groups[name] !== undefined);
    nodes.push(text.slice(at, match.index), el('span', {class: kind}, match[0]));
    at = match.index + match[0].length;
  }
  return [...nodes, text.slice(at)].filter((part) => part !== '');
}

function codeBlock(text, language) {
  const code = el('code', {}, ...painted(text, language));
  const copy = el(
    'button',
    {
      class: 'icon',
      type: 'button',
      'aria-label': 'Copy the code',
      title: 'Copy the code',
      onclick: () => copyText(code.textContent, copy),
    },
    icon('copy'),
  );
  const title = language || 'code';
  return el(
    'figure',
    {class: 'code', dir: 'ltr', 'data-language': language},
    el('figcaption', {}, el('span', {}, title), copy),
    el('pre', {tabindex: 0, role: 'region', 'aria-label': `Code, ${title}`}, code),
  );
}

function list(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  if (!first || depth > MAX_DEPTH) return null;
  const ordered = /\d/.test(first[2]);
  const items = [];
  let end = at;
  for (
    let match;
    end < lines.length &&
    (match = ITEM.exec(lines[end])) &&
    match[1].length < first[1].length + 2 &&
    /\d/.test(match[2]) === ordered &&
    !RULE.test(lines[end]);
  ) {
    const stop = itemEnd(lines, end + 1, match);
    items.push([match, lines.slice(end, stop)]);
    end = stop;
  }
  if (!items.length) return null;
  const start = ordered && parseInt(first[2], 10) !== 1 ? parseInt(first[2], 10) : null;
  return {
    node: el(ordered ? 'ol' : 'ul', {dir: 'auto', start}, ...items.map(([match, own]) => listItem(match, own, depth))),
    end,
  };
}

/* The lines of an item: those that are indented, and those that go on its paragraph; blank ones between. */
function itemEnd(lines, from, match) {
  const inner = match[1].length + 2;
  let end = from;
  for (let at = from; at < lines.length; at++) {
    const blank = !lines[at].trim();
    const indent = lines[at].search(/\S/);
    if (!blank && indent < inner && (startsBlock(lines[at]) || !lines[at - 1].trim())) break;
    if (!blank) end = at + 1;
  }
  while (end < lines.length && !lines[end].trim()) end++;
  return end;
}

function listItem(match, own, depth) {
  const width = match[0].length;
  const text = [
    own[0].slice(width),
    ...own.slice(1).map((line) => line.slice(Math.min(width, Math.max(0, line.search(/\S/))))),
  ];
  const task = /^\[([ xX])\] /.exec(text[0]);
  if (task) text[0] = text[0].slice(4);
  const children = blocks(text, depth + 1);
  const tight = children.filter((child) => child.tagName === 'P').length === 1 && children[0].tagName === 'P';
  const nodes = tight ? [...children[0].childNodes, ...children.slice(1)] : children;
  return el('li', {class: task && 'task'}, task && (task[1] === ' ' ? '☐ ' : '☑ '), ...nodes);
}

function cells(line) {
  return line
    .trim()
    .replace(/^\|/, '')
    .replace(/(?<!\\)\|$/, '')
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll('\\|', '|'));
}

function table(lines, at, depth) {
  if (!isTable(lines, at)) return null;
  const sides = cells(lines[at + 1]).map((c) => (c.endsWith(':') ? (c.startsWith(':') ? 'middle' : 'end') : null));
  const row = (line, tag) => {
    const own = cells(line);
    return el('tr', {}, ...sides.map((side, i) => el(tag, {dir: 'auto', class: side}, ...inline(own[i] ?? '', depth))));
  };
  let end = at + 2;
  while (end < lines.length && lines[end].includes('|') && lines[end].trim()) end++;
  const body = lines.slice(at + 2, end).map((line) => row(line, 'td'));
  return {
    node: el(
      'div',
      {class: 'table', tabindex: 0, role: 'region', 'aria-label': 'Table'},
      el('table', {}, el('thead', {}, row(lines[at], 'th')), el('tbody', {}, ...body)),
    ),
    end,
  };
}

/* Nodes of all blocks; with `starts`, the line at which each begins. */
function blocks(lines, depth = 0, starts = []) {
  if (depth > MAX_DEPTH) return [el('p', {dir: 'auto'}, lines.join('\n'))];
  const nodes = [];
  for (let at = 0; at < lines.length;) {
    if (!lines[at].trim()) {
      at++;
      continue;
    }
    let found = null;
    for (const block of BLOCKS) if ((found = block(lines, at, depth))) break;
    starts.push(at);
    nodes.push(found.node);
    at = found.end;
  }
  return nodes;
}

/* ---- text that grows ---- */

/* Lines with tabs before the text as spaces, but for those of code. */
function linesOf(text) {
  let fence = null;
  return text.split(/\r?\n/).map((line) => {
    const inside = fence;
    if (fence && isClosing(line, fence)) fence = null;
    else if (!fence) fence = /^\s*(`{3,}|~{3,})[^`]*$/.exec(line)?.[1] ?? null;
    return inside || fence ? line : line.replace(/^\t+/, (tabs) => '    '.repeat(tabs.length));
  });
}

class MarkdownView {
  constructor(node) {
    this.node = node;
    this.text = '';
    this.settled = 0; // characters before the last block
    this.last = 0; // nodes before it
  }

  update(text) {
    if (text === this.text) return;
    if (!text.startsWith(this.text)) Object.assign(this, {settled: 0, last: 0});
    this.text = text;
    const lines = linesOf(text.slice(this.settled));
    const starts = [];
    const nodes = blocks(lines, 0, starts);
    const old = [...this.node.childNodes].slice(this.last);
    if (nodes.length && old.length && growsCode(old[0], nodes[0])) nodes[0] = old[0];
    else old[0]?.remove();
    old.slice(1).forEach((node) => node.remove());
    this.node.append(...nodes.filter((node) => node !== old[0]));
    if (nodes.length > 1) this.settle(starts[starts.length - 1], nodes.length - 1);
  }

  /* A line may have been taken for something else before it was whole. */
  finish() {
    const nodes = blocks(linesOf(this.text));
    const old = [...this.node.childNodes];
    if (nodes.length !== old.length || nodes.some((node, i) => !node.isEqualNode(old[i])))
      this.node.replaceChildren(...nodes);
    Object.assign(this, {settled: 0, last: 0});
  }

  settle(line, blocksBefore) {
    let at = this.settled;
    for (; line > 0; line--) at = this.text.indexOf('\n', at) + 1;
    this.settled = at;
    this.last += blocksBefore;
  }
}

/* A code block that grows keeps its node, so that its scroll position and its focus stay. */
function growsCode(old, fresh) {
  if (old.className !== 'code' || fresh.className !== 'code' || old.dataset.language !== fresh.dataset.language)
    return false;
  old.querySelector('code').replaceChildren(...fresh.querySelector('code').childNodes);
  return true;
}
