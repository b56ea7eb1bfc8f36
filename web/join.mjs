// Joins the page, the emscripten glue and the program to one file without further parts: node web/join.mjs PAGE BUILD OUT
// The program is packed with gzip, since base64 makes it a third larger, and the browser unpacks it.
import {createHash} from 'node:crypto';
import {readFileSync, writeFileSync} from 'node:fs';
import {gzipSync} from 'node:zlib';

const [page, build, out] = process.argv.slice(2);
const SCRIPTS = ['dom', 'program', 'state', 'pictures', 'main']; // in this order
const MOST_BYTES = 2_000_000;

const read = (...parts) => readFileSync(parts.join('/'), 'utf8');
const hash = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

const style = read(page, 'page.css');
const script = SCRIPTS.map((name) => read(page, `${name}.js`)).join('');
const worker = read(build, 'planner.js') + read(page, 'worker.js');
const program = gzipSync(readFileSync(`${build}/planner.wasm`), {level: 9}).toString('base64');
for (const part of [style, script, worker])
  if (/<\/s[ct]|<!--/i.test(part))
    throw new Error('a part holds </script, </style or <!--, which would end its element');

const policy = [
  "default-src 'none'",
  `script-src ${hash(script)} 'wasm-unsafe-eval'`,
  `style-src ${hash(style)}`,
  'worker-src blob:',
  'img-src data:',
  "base-uri 'none'",
  "form-action 'none'",
  "require-trusted-types-for 'script'",
  'trusted-types planner',
].join('; ');
const parts = {POLICY: policy, STYLE: style, WORKER: worker, PROGRAM: program, SCRIPT: script};
const html = read(page, 'page.html').replace(/@([A-Z]+)@/g, (whole, name) => parts[name] ?? whole);
if (html.length >= MOST_BYTES) throw new Error(`the page has ${html.length} bytes, more than ${MOST_BYTES}`);
writeFileSync(out, html);
console.log(`${out}: ${Buffer.byteLength(html)} bytes`);
