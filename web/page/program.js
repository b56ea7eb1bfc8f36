/* The program: unpacked from the page, compiled once, and run by workers. */
async function compileProgram() {
  const packed = Uint8Array.from(atob($('program').textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return WebAssembly.compile(await new Response(stream).arrayBuffer());
}

function startWorker() {
  const url = URL.createObjectURL(new Blob([$('worker').textContent], {type: 'text/javascript'}));
  const policy = window.trustedTypes?.createPolicy('planner', {createScriptURL: (made) => made});
  return () => new Worker(policy ? policy.createScriptURL(url) : url);
}

/* What a command line says, of its JSON: {code, value} or {code, error: {message, hint}}. */
function read({code, out, err}) {
  try {
    const value = JSON.parse(out);
    return value.error ? {code, error: value.error} : {code, value};
  } catch {
    return {code, error: {message: err || out || `the program ended with ${code}`, hint: ''}};
  }
}

/* One worker: commands wait for their turn. */
class Runner {
  constructor(worker, module) {
    this.worker = worker;
    this.waiting = [];
    this.worker.onmessage = ({data}) => this.took(data);
    this.worker.onerror = ({message}) => this.running && this.took({code: 1, out: '', err: message});
    worker.postMessage({module});
  }
  /* The answer of a command; null if drop() came before it began. */
  run(words, files = {}) {
    return new Promise((done) => {
      this.waiting.push({words, files, done});
      this.next();
    });
  }
  ask = async (...call) => {
    const answer = await this.run(...call);
    return answer && read(answer);
  };
  drop() {
    for (const call of this.waiting.splice(0)) call.done(null);
  }
  next() {
    if (this.running || !this.waiting.length) return;
    this.running = this.waiting.shift();
    this.worker.postMessage({id: 0, words: this.running.words, files: this.running.files});
  }
  took(answer) {
    const {done} = this.running;
    this.running = undefined;
    done(answer);
    this.next();
  }
}
