/* Runs the program in a thread of its own, behind the glue that emscripten wrote (join.mjs puts it before this).
 *
 *   in   {module}                        once: the compiled program
 *        {id, words, files}              a command line, and files that it may read: {name: text}
 *   out  {id, code, out, err, ms}        exit status, standard output and error
 *
 * One instance serves many commands. One that ended badly (a check that failed, memory that ran out) is replaced. */
let compiled, ready;

function begin() {
  const said = {out: [], err: []};
  return new Promise((done, failed) => {
    const options = {
      print: (line) => said.out.push(line),
      printErr: (line) => said.err.push(line),
      instantiateWasm: (imports, took) => {
        WebAssembly.instantiate(compiled, imports).then((instance) => took(instance, compiled), failed);
        return {};
      },
    };
    createPlanner(options).then((program) => done({program, said}), failed);
  });
}

function run({program, said}, words, files) {
  said.out.length = said.err.length = 0;
  for (const [name, text] of Object.entries(files)) program.FS.writeFile(name, text);
  const code = program.callMain(words);
  for (const name of Object.keys(files)) program.FS.unlink(name);
  return {code, out: said.out.join('\n'), err: said.err.join('\n')};
}

async function answer({id, words, files}) {
  const from = performance.now();
  ready ??= begin();
  try {
    const result = run(await ready, words, files);
    postMessage({id, ...result, ms: performance.now() - from});
  } catch (e) {
    const said = await ready.then((begun) => begun.said.err).catch(() => []);
    ready = undefined;
    postMessage({id, code: 1, out: '', err: [...said, String(e)].join('\n'), ms: performance.now() - from});
  }
}

onmessage = ({data}) => {
  if (data.module) compiled = data.module;
  else answer(data);
};
