/* The server: the OpenAI API of the origin that the page came from, and its failures in plain words. */

class Failure extends Error {
  constructor(kind, title, detail = '') {
    super(title);
    Object.assign(this, {kind, title, detail});
  }
}

const apiKey = {
  get: () => sessionStorage.getItem('athanor.key') ?? localStorage.getItem('athanor.key') ?? '',
  set(key, keep) {
    sessionStorage.setItem('athanor.key', key);
    if (keep) localStorage.setItem('athanor.key', key);
    else localStorage.removeItem('athanor.key');
  },
};

const serverGone = () =>
  new Failure('gone', 'The server does not answer.', `Is athanor serve still running at ${location.host}?`);

const sentence = (text) =>
  typeof text !== 'string' || !text ? '' : `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`;

async function failureOf(response) {
  const body = await response.json().catch(() => ({}));
  const said = sentence(body?.error?.message);
  const code = body?.error?.code;
  const wait = parseInt(response.headers.get('Retry-After'), 10);
  const later = wait > 0 ? ` It asks to try again in ${count(wait, 'second')}.` : '';
  switch (response.status) {
    case 401:
    case 403:
      return new Failure('key', 'The server wants an API key.', said);
    case 404:
      return new Failure('model', 'The server does not have this model.', said);
    case 413:
      return new Failure('long', 'This is more text than the server takes at once.', said);
    case 429:
      return new Failure('busy', 'The server is busy with others.', said + later);
    case 503:
      return new Failure('busy', 'The server takes no requests at the moment.', said + later);
  }
  if (code === 'context_length_exceeded') {
    return new Failure(
      'long',
      'The conversation is too long for this model.',
      `${said} Edit an earlier message, or begin a new conversation.`.trim(),
    );
  }
  if (response.status < 500) return new Failure('refused', 'The server refused the request.', said);
  return new Failure('failed', 'The server failed.', said || `Status ${response.status}`);
}

async function request(path, body, signal) {
  const headers = apiKey.get() ? {Authorization: `Bearer ${apiKey.get()}`} : {};
  if (body) headers['Content-Type'] = 'application/json';
  let response;
  try {
    response = await fetch(path, {
      method: body ? 'POST' : 'GET',
      headers,
      body: body && JSON.stringify(body),
      signal,
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'error',
    });
  } catch (error) {
    throw error.name === 'AbortError' ? error : serverGone();
  }
  if (!response.ok) throw await failureOf(response);
  return response;
}

async function listModels() {
  const list = await (await request('/v1/models')).json();
  return list.data.filter((model) => typeof model?.id === 'string');
}

/* The objects of a stream of server-sent events, up to [DONE]. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {value, done} = await reader.read().catch((error) => {
      throw error.name === 'AbortError' ? error : cutOff();
    });
    if (done) throw cutOff();
    const lines = (rest + value).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith('data:')) continue;
      const data = line.slice(5).trim();
      if (data === '[DONE]') return;
      yield JSON.parse(data);
    }
  }
}

const cutOff = () => new Failure('cut', 'The answer was cut off.', 'The connection to the server broke in the middle.');

/* Tokens as [text, log p, [[text, log p], …]]. A token may hold a part of a character only: its text is then the
 * bytes in hexadecimal, and the character stands with the token that completes it. */
class TokenReader {
  constructor() {
    this.decoder = new TextDecoder();
  }
  text(entry) {
    if (!entry.bytes?.length) return entry.token;
    const text = this.decoder.decode(new Uint8Array(entry.bytes), {stream: true});
    return text || hexBytes(entry.bytes);
  }
  chat(logprobs) {
    return (logprobs?.content ?? []).map((entry) => [
      this.text(entry),
      round3(entry.logprob),
      (entry.top_logprobs ?? []).map((other) => [wholeText(other), round3(other.logprob)]),
    ]);
  }
  plain(logprobs) {
    return (logprobs?.tokens ?? []).map((text, i) => [
      text,
      round3(logprobs.token_logprobs[i]),
      Object.entries(logprobs.top_logprobs?.[i] ?? {})
        .map(([other, p]) => [other, round3(p)])
        .sort((a, b) => b[1] - a[1]),
    ]);
  }
}

const hexBytes = (bytes) => bytes.map((byte) => `‹${byte.toString(16).padStart(2, '0')}›`).join('');
const wholeText = (entry) => (entry.token.includes('\ufffd') && entry.bytes ? hexBytes(entry.bytes) : entry.token);
const round3 = (x) => Math.round(x * 1000) / 1000;

/* Streams one answer. `onpiece` gets {text, think, tokens} as they come; the result has finish and usage. */
async function streamAnswer(plan, signal, onpiece) {
  const chat = plan.mode !== 'text';
  const body = {model: plan.model, stream: true, stream_options: {include_usage: true}, seed: plan.seed, ...plan.set};
  if (chat) Object.assign(body, {messages: plan.messages, logprobs: true, top_logprobs: 5});
  else Object.assign(body, {prompt: plan.messages.map((m) => m.content).join(''), logprobs: 5});
  const response = await request(chat ? '/v1/chat/completions' : '/v1/completions', body, signal);
  const reader = new TokenReader();
  const result = {finish: null, usage: null};
  for await (const event of events(response)) {
    if (event.error)
      throw new Failure('failed', 'The server failed in the middle of the answer.', sentence(event.error.message));
    if (event.usage) result.usage = event.usage;
    const choice = event.choices?.[0];
    if (!choice) continue;
    if (choice.finish_reason) result.finish = choice.finish_reason;
    onpiece(
      chat
        ? {
            text: choice.delta?.content ?? '',
            think: choice.delta?.reasoning_content ?? '',
            tokens: reader.chat(choice.logprobs),
          }
        : {text: choice.text ?? '', think: '', tokens: reader.plain(choice.logprobs)},
    );
  }
  return result;
}
