/* Nodes and numbers. Nodes are made here and nowhere else: what a user or the program wrote becomes text, never markup.
 *
 * The page's scripts are one module, joined in the order of web/join.mjs: dom, program (the compiled program in its
 * workers), state (the fields and the address), pictures, main (what is asked when). Formatted by
 * prettier --single-quote --print-width 120 --no-bracket-spacing --object-wrap=collapse. */
const $ = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child != null && child !== false));
  return node;
}

/* el('p', {class: 'soft', onclick: f}, 'text', node): attributes that are false or null are left out. */
const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

/* Three digits: 12.3, 1.23, 1,235. */
const digits = (v) =>
  v.toLocaleString('en', v >= 1000 ? {maximumFractionDigits: 0} : {maximumSignificantDigits: 3, useGrouping: false});
const bytes = (n) => (n >= 2 ** 29 ? `${digits(n / 2 ** 30)} GiB` : `${digits(n / 2 ** 20)} MiB`);
const seconds = (ms) => (ms >= 1000 ? `${digits(ms / 1000)} s` : `${digits(ms)} ms`);
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const amount = (n) =>
  n >= 1e12
    ? `${digits(n / 1e12)} T`
    : n >= 1e9
      ? `${digits(n / 1e9)} B`
      : n >= 1e6
        ? `${digits(n / 1e6)} M`
        : digits(n);
