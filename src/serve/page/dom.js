/* Nodes, icons, words. Nodes are made here and nowhere else: what a model or a user wrote becomes text, never markup.
 *
 * The page's scripts are one module, joined in the order of cmake/page.cmake: dom, api (the server), markdown, store
 * (conversations), tokens, settings, turns (what is on screen), main (what the user does). Formatted by
 * prettier --single-quote --print-width 120 --no-bracket-spacing --object-wrap=collapse. */
const $ = (id) => document.getElementById(id);

/* el('p', {class: 'soft', onclick: f}, 'text', node): attributes that are false or null are left out. */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child != null && child !== false));
  return node;
}

const ICONS = {
  plus: 'M12 5v14M5 12h14',
  close: 'M6 6l12 12M18 6L6 18',
  columns: 'M4 5h16v14H4zM12 5v14',
  sidebar: 'M4 5h16v14H4zM9.5 5v14',
  sliders: 'M4 8h9M17 8h3M15 6v4M4 16h3M11 16h9M9 14v4',
  up: 'M12 19V5M6 11l6-6 6 6',
  down: 'M12 5v14M6 13l6 6 6-6',
  stop: 'M8 8h8v8H8z',
  copy: 'M9 9h10v10H9zM5 15V5h10',
  check: 'M5 13l4 4L19 7',
  pencil: 'M4 20l1-4L16 5l3 3L8 19zM14 7l3 3',
  retry: 'M19 12a7 7 0 1 1-2.1-5M19 3v5h-5',
  left: 'M14 7l-5 5 5 5',
  right: 'M10 7l5 5-5 5',
  trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
  download: 'M12 4v11M7 10l5 5 5-5M5 20h14',
  tokens: 'M4 7h6v4H4zM14 7h6v4h-6zM4 15h9v4H4zM17 15h3v4h-3z',
  keep: 'M6 4h12v16l-6-4-6 4z',
  keyboard: 'M3 7h18v11H3zM7 11h.01M11 11h.01M15 11h.01M8 15h8',
  system: 'M4 5h16v11H4zM9 20h6M12 16v4',
  sun: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 3v1M12 20v1M3 12h1M20 12h1M5.6 5.6l.8.8M17.6 17.6l.8.8M5.6 18.4l.8-.8M17.6 6.4l.8-.8',
  moon: 'M19 14.5A8 8 0 0 1 9.5 5a7.5 7.5 0 1 0 9.5 9.5z',
};

function icon(name) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  path.setAttribute('d', ICONS[name]);
  svg.append(path);
  return svg;
}

/* A button of an icon alone; `act` is its name for the keyboard and for tests. */
function iconButton(name, label, onclick, act = name) {
  return el(
    'button',
    {class: 'icon', type: 'button', 'aria-label': label, title: label, 'data-act': act, onclick},
    icon(name),
  );
}

function setIcon(button, name) {
  button.querySelector('svg')?.remove();
  button.prepend(icon(name));
}

function toast(text, action, onclick) {
  const button =
    action &&
    el(
      'button',
      {
        onclick: () => {
          onclick();
          $('toast').replaceChildren();
        },
      },
      action,
    );
  const card = el('div', {}, el('span', {}, text), button);
  $('toast').replaceChildren(card);
  setTimeout(() => card.remove(), action ? 10000 : 3000);
}

/* Pages that are not on this machine and not on https have no clipboard of their own: then a selection is copied. */
async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el('textarea', {class: 'unseen'});
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand('copy');
    area.remove();
    if (!copied) return toast('The browser did not allow copying.');
  }
  setIcon(button, 'check');
  $('live').append(el('p', {}, 'Copied'));
  setTimeout(() => setIcon(button, 'copy'), 1500);
}

function download(name, value) {
  const url = URL.createObjectURL(new Blob([JSON.stringify(value, null, 1)], {type: 'application/json'}));
  el('a', {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const count = (n, noun) => `${n.toLocaleString('en')} ${noun}${n === 1 ? '' : 's'}`;
const percent = (p) =>
  p >= 0.9995
    ? '100 %'
    : p >= 0.01
      ? `${(p * 100).toFixed(1)} %`
      : p >= 1e-5
        ? `${(p * 100).toPrecision(1)} %`
        : '< 0.001 %';

/* What a screen reader is told of an answer: whole sentences, as they come. */
class Speaker {
  constructor() {
    this.said = 0;
  }
  hear(text, done) {
    const rest = text.slice(this.said);
    const sentence = done ? rest : rest.match(/^[^]*[.!?:\n](?=\s)/)?.[0];
    if (!sentence?.trim()) return;
    this.said += sentence.length;
    const log = $('live');
    log.append(el('p', {}, sentence.trim()));
    while (log.childElementCount > 20) log.firstChild.remove();
  }
}
