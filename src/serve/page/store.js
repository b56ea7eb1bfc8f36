/* Conversations, as this browser keeps them (localStorage, a key each).
 *
 * A conversation is a tree, so that editing and retrying lose nothing:
 *   root -> asks (versions of a message) -> replies (versions of the answers to it) -> asks …
 *   ask   {text, kids: [reply], at}
 *   reply {answers: [one a column], kids: [ask], at}
 *   answer {model, mode, set, seed, text, think, tokens, finish, stats, error, edited}
 * `at` says which of the kids is shown. A column is {model, mode, set}: set holds what differs from the server's
 * defaults; mode 'text' lets a model without a chat template go on with the text. */
const CHAT = 'athanor.chat.';

const prefs = {
  all: readJson('athanor.prefs') ?? {},
  get(name, fallback) {
    return this.all[name] ?? fallback;
  },
  set(name, value) {
    this.all[name] = value;
    write('athanor.prefs', this.all);
  },
};

function readJson(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null;
  }
}

function write(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false; // full, or the browser keeps nothing
  }
}

const store = {
  all: new Map(),

  load() {
    for (const key of Object.keys(localStorage)) if (key.startsWith(CHAT)) this.read(key);
  },

  read(key) {
    const conv = readJson(key);
    if (conv?.root && conv.id === key.slice(CHAT.length)) this.all.set(conv.id, conv);
    else this.all.delete(key.slice(CHAT.length));
  },

  latestFirst() {
    return [...this.all.values()].sort((a, b) => b.used - a.used);
  },

  /* Token probabilities are most of the bytes: where the browser has no room left, the oldest go first. */
  save(conv) {
    conv.used = Date.now();
    this.all.set(conv.id, conv);
    if (write(CHAT + conv.id, conv)) return;
    for (const other of this.latestFirst().reverse()) {
      if (
        !eachAnswer(other.root, (answer) => {
          answer.tokens = [];
        })
      )
        continue;
      write(CHAT + other.id, other);
      if (write(CHAT + conv.id, conv)) return;
    }
    toast('This browser has no room for more conversations: export or delete some.');
  },

  remove(conv) {
    this.all.delete(conv.id);
    localStorage.removeItem(CHAT + conv.id);
  },
};

function newConversation(columns, system) {
  const id = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random().toString(36).slice(2)}`;
  return {id, title: '', made: Date.now(), used: Date.now(), system, columns, root: {kids: [], at: 0}};
}

/* What is shown, from the first message on: [{parent, ask, reply}]; reply is missing where nothing was answered. */
function pathOf(conv) {
  const path = [];
  for (let parent = conv.root; parent?.kids.length;) {
    const ask = parent.kids[parent.at];
    const reply = ask.kids[ask.at];
    path.push({parent, ask, reply});
    parent = reply;
  }
  return path;
}

/* The messages that a column's model sees for an answer to `last`: a message that got no answer is left out. */
function messagesFor(conv, column, last) {
  const messages = [];
  if (conv.system.trim() && conv.columns[column].mode !== 'text') messages.push({role: 'system', content: conv.system});
  for (const {ask, reply} of pathOf(conv)) {
    if (ask === last) break;
    const answer = reply && (reply.answers[column] ?? reply.answers[0]);
    if (answer?.text) messages.push({role: 'user', content: ask.text}, {role: 'assistant', content: answer.text});
  }
  messages.push({role: 'user', content: last.text});
  return messages;
}

function addKid(parent, kid) {
  parent.kids.push(kid);
  parent.at = parent.kids.length - 1;
  return kid;
}

/* Calls f for the answers below a node that hold tokens; whether there was one. */
function eachAnswer(node, f) {
  let found = false;
  for (const todo = [node]; todo.length;) {
    const at = todo.pop();
    for (const answer of at.answers ?? [])
      if (answer?.tokens?.length) {
        f(answer);
        found = true;
      }
    todo.push(...at.kids);
  }
  return found;
}

const titleOf = (conv) => conv.title || 'New conversation';

const exported = (conv) => ({
  title: titleOf(conv),
  messages: pathOf(conv).flatMap(({ask, reply}) => [
    {role: 'user', content: ask.text},
    ...(reply?.answers[0] ? [{role: 'assistant', content: reply.answers[0].text}] : []),
  ]),
  conversation: conv,
});
