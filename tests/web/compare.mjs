// The program in WebAssembly says what the native one says: node tests/web/compare.mjs ATHANOR BUILD
// All standard output, byte for byte, and the exit status. One number differs: what a process takes beside its arena counts
// structures with pointers in them, which are half as large there.
import {spawnSync} from 'node:child_process';
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';

const [native, build] = process.argv.slice(2);
const create = createRequire(import.meta.url)(`${build}/planner.js`);
const MOST_APART = 4096;
const RUN = 'train.precision=bf16 train.threads=1 train.seq_len=2048';
const CASES = `
plan smollm2-135m cluster=h100-8 ${RUN}
plan --json smollm2-135m cluster=h100-8 ${RUN} parallel.zero=1 train.global_batch_size=64 train.micro_batch_size=4
plan --json llama-3-8b cluster=a100-64 ${RUN} parallel.zero=3 train.global_batch_size=512
plan --json llama-3.1-405b cluster=h100-512 ${RUN} parallel.tp=8 parallel.zero=3 train.recompute=full train.global_batch_size=512
plan --json qwen3-4b cluster=rtx4090-8 ${RUN} parallel.zero=2 optim.name=adafactor train.global_batch_size=64
plan --json gpt2 cluster=l4-2 train.precision=fp16 train.threads=1
plan --json gpt2 cluster=h100-8 train.precision=fp32 train.threads=1 parallel.tp=2 parallel.sp=true train.global_batch_size=32
plan --json llama-3-8b device=cuda parallel.pp=4 parallel.dp=16 ${RUN} train.global_batch_size=512 train.memory_limit=80Gi
plan --json config.yaml cluster=h100-8 ${RUN} parallel.zero=1 train.global_batch_size=64
plan --json gpt2 cluster=cluster.yaml ${RUN} train.seq_len=1024 train.global_batch_size=32
plan --json llama-3-70b cluster=h100-64 ${RUN}
plan llama-3-8b cluster=h100-64 ${RUN} train.micro_batch_size=4
plan --json llama-3-8b cluster=h100-64 parallel.tp=3
plan --json nothing-of-that-name cluster=h100-64
plan --json gpt2 cluster=h100-0
plan --json gpt2 cluster=h100-8 train.micro_batch=3
plan --json gpt2 cluster=h100-8 ${RUN} train.recompute=some
plan cluster h200-32
plan schedule --stages 4 --micro-batches 8
plan schedule zb-v --stages 4 --micro-batches 8 --times 1,1.1,0.9,0.2 --json
plan cost --params 3B --tokens 11T --mfu 0.3 --devices 384 --days 28 --price 2.5 --json
plan search --json smollm3-3b cluster=h100-64 ${RUN} train.global_batch_size=512
config presets --json
plan cluster --help
`;
const FILES = ['config.yaml', 'cluster.yaml']; // of the folder that it is started in

const said = {out: [], err: []};
const program = await create({
  wasmBinary: readFileSync(`${build}/planner.wasm`),
  print: (line) => said.out.push(line),
  printErr: (line) => said.err.push(line),
});
for (const name of FILES) program.FS.writeFile(name, readFileSync(name));

function inBrowser(words) {
  said.out.length = said.err.length = 0;
  const code = program.callMain(words);
  return {code, out: said.out.map((line) => line + '\n').join(''), err: said.err.join('\n')};
}

function onMachine(words) {
  const made = spawnSync(native, words, {encoding: 'utf8', maxBuffer: 1 << 26});
  return {code: made.status, out: made.stdout, err: made.stderr};
}

/* Without what may differ: seconds that a search took; and bytes of the process, or with them, which are returned. */
function settle(text) {
  const process = [];
  const out = text
    .replace(/"(?:baseline|needed)_bytes": (\d+)/g, (_, bytes) => {
      process.push(Number(bytes));
      return 'X';
    })
    .replace(/"seconds": [\d.e-]+/g, '"seconds": X');
  return {out, process};
}

let failed = 0,
  tried = 0;
for (const line of CASES.trim().split('\n')) {
  const words = line.split(' '),
    a = onMachine(words),
    b = inBrowser(words);
  const [x, y] = [settle(a.out), settle(b.out)];
  const near = x.process.every((bytes, i) => Math.abs(bytes - y.process[i]) <= MOST_APART);
  const same = a.code === b.code && x.out === y.out && near;
  tried++;
  if (same) continue;
  failed++;
  let at = 0;
  while (at < x.out.length && x.out[at] === y.out[at]) at++;
  console.log(`FAIL athanor ${line}\n  exit ${a.code}, ${b.code} in WebAssembly; process ${x.process}, ${y.process}`);
  console.log(`  native: ${x.out.slice(at - 60, at + 60)}\n  there:  ${y.out.slice(at - 60, at + 60)}\n  ${b.err}`);
}
console.log(`${tried - failed} of ${tried} command lines say the same`);
process.exitCode = failed ? 1 : 0;
