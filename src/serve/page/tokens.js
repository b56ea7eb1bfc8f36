/* The tokens of an answer, each tinted by its probability, with what else the model might have written.
 * One stop of the Tab key: the arrows go from token to token, and a screen reader hears it as a list. */
const MARKS = {'\n': '⏎\n', '\t': '⇥\t', ' ': '·'};

class TokensView {
  constructor() {
    this.tokens = [];
    this.at = -1;
    this.node = el('div', {
      class: 'tokens',
      role: 'listbox',
      tabindex: 0,
      dir: 'auto',
      'aria-label': 'Tokens of the answer, with their probabilities',
      onkeydown: (event) => this.key(event),
      onpointerover: (event) => this.point(event),
      onpointerleave: () => hideTip(),
      onfocus: () => this.node.matches(':focus-visible') && this.choose(Math.max(0, this.at)),
      onblur: () => this.choose(-1),
      onclick: (event) => this.point(event),
    });
  }

  update(tokens) {
    for (let i = this.tokens.length; i < tokens.length; i++) this.node.append(this.cell(tokens[i], i));
    this.tokens = tokens.slice();
  }

  cell([text, logprob, others], i) {
    const p = Math.exp(logprob);
    const shown = text.replace(/[\n\t]/g, (c) => MARKS[c]);
    const cell = el(
      'span',
      {
        role: 'option',
        id: `${tokenViews.id(this)}-${i}`,
        'data-i': i,
        class: others.length && others[0][0] !== text ? 'unlikely' : null,
        'aria-label': [
          `${spoken(text)}, ${percent(p)}`,
          ...others.filter(([other]) => other !== text).map(([other, q]) => `${spoken(other)} ${percent(Math.exp(q))}`),
        ].join('; '),
      },
      /^ +$/.test(shown) ? MARKS[' '].repeat(shown.length) : shown,
    );
    cell.style.setProperty('--doubt', (1 - p).toFixed(3));
    return cell;
  }

  choose(i) {
    this.node.children[this.at]?.removeAttribute('aria-selected');
    this.at = i;
    const cell = this.node.children[i];
    if (!cell) {
      this.node.removeAttribute('aria-activedescendant');
      return hideTip();
    }
    cell.setAttribute('aria-selected', 'true');
    this.node.setAttribute('aria-activedescendant', cell.id);
    cell.scrollIntoView({block: 'nearest'});
    showTip(cell, this.tokens[i]);
  }

  point(event) {
    const i = event.target.dataset?.i;
    if (i !== undefined) showTip(event.target, this.tokens[i], event);
  }

  key(event) {
    const to = {
      ArrowRight: this.at + 1,
      ArrowLeft: this.at - 1,
      Home: 0,
      End: this.tokens.length - 1,
      ArrowDown: this.below(1),
      ArrowUp: this.below(-1),
    }[event.key];
    if (to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.choose(Math.min(this.tokens.length - 1, Math.max(0, to)));
  }

  /* The token that stands under (or over) the chosen one, in the next line. */
  below(step) {
    const cells = this.node.children;
    const from = cells[this.at];
    if (!from) return 0;
    let best = this.at;
    for (let i = this.at + step, line = null; cells[i]; i += step) {
      const top = cells[i].offsetTop;
      if (top === from.offsetTop) continue;
      line ??= top;
      if (top !== line) break;
      if (
        best === this.at ||
        Math.abs(cells[i].offsetLeft - from.offsetLeft) < Math.abs(cells[best].offsetLeft - from.offsetLeft)
      )
        best = i;
    }
    return best;
  }
}

const tokenViews = {
  n: 0,
  ids: new WeakMap(),
  id(view) {
    if (!this.ids.has(view)) this.ids.set(view, `tokens-${this.n++}`);
    return this.ids.get(view);
  },
};

const spoken = (text) => text.replace(/\n/g, ' new line ').replace(/^\s+$/, 'space') || 'nothing';
const visible = (text) => text.replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/ /g, '␣') || '∅';

/* ---- the box beside a token ---- */

function showTip(cell, [text, logprob, others], pointer) {
  const rows = others.map(([other, q]) => [other, q, other === text]);
  if (!rows.some(([, , chosen]) => chosen)) rows.push([text, logprob, true]);
  const tip = $('tip');
  tip.replaceChildren(
    ...rows.map(([other, q, chosen]) => {
      const bar = el('i');
      bar.style.setProperty('--p', Math.exp(q).toFixed(4));
      return el(
        'div',
        {class: chosen ? 'chosen' : null},
        el('code', {dir: 'auto'}, visible(other)),
        bar,
        el('span', {}, percent(Math.exp(q))),
      );
    }),
  );
  tip.hidden = false;
  const rects = [...cell.getClientRects()];
  const at = (pointer && rects.find((r) => pointer.clientY >= r.top && pointer.clientY <= r.bottom)) || rects[0];
  if (!at) return;
  const left = Math.min(at.left, innerWidth - tip.offsetWidth - 8);
  const over = at.bottom + tip.offsetHeight + 12 > innerHeight && at.top > tip.offsetHeight + 12;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${over ? at.top - tip.offsetHeight - 6 : at.bottom + 6}px`;
}

function hideTip() {
  $('tip').hidden = true;
}
