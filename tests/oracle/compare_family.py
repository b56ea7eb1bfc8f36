"""Compares the program with transformers and reference.py on random models of every family.

    python compare_family.py ATHANOR [--families a,b] [--seeds N] [--first SEED] [--keep DIR] [--golden]

For each family and seed a random config (random_models.py; half of them in the words of transformers 4) with random
weights is saved as a Hugging Face folder. Then, against double precision:
  logits   generate --ids --logits                    relative 1e-5, one forward pass longer than every window
  grads    train --dump-grads                         loss and every gradient, relative 1e-4
  balance  the same with train.router.balance=sequence and global, and with a z-loss; "-": there are no experts
  capacity the same with train.router.capacity_factor, where picks of experts are dropped; "-" as above
  greedy   generate --ids --max-new 64                the same ids; a near-tie (1e-3, in bf16 as PyTorch's own) may go either way
  cache    the program's own logits of the whole text choose the ids that it decoded through its cache
  beams    generate --beams 3, of encoders; not bf16  the texts of transformers' beam search, and their scores to 1e-4
  batch    generate --batch, prompts of four lengths  the same ids as alone
  causal   logits before a changed token stay the same
  export   export --to hf                             every tensor bit for bit, and the folder computes the same logits
  import   import SRC -o DST                          every tensor bit for bit
           (rows of llama2.c's rotary pairs are stored as transformers has them)
  gguf     export --to gguf --dtype F16               run by the program: relative 2e-2; "-": the format has no such model
  llamacpp the same file run by llama.cpp             relative 2e-2; "-" without the package llama-cpp-python
--golden runs the folders of ../golden/models instead. Exit status 1 if anything failed. The first line of what the
program said comes after the table; --keep leaves the folders.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch
import transformers

try:
    import llama_cpp

    SILENT = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(SILENT, None)
except ImportError:
    llama_cpp = None

import encoders
import experts
from exact import (all_double, copy_of, draw_ids, fill, golden, load_model, logits_of, new_model, relative_difference)
from random_models import CONTEXT, FAMILIES, Draw, as_version_4
from reference import Config

LOGITS, LOSS, GRADS, TIE, GGUF, SCORES = 1e-5, 1e-4, 1e-4, 1e-3, 2e-2, 1e-4
NEW_TOKENS = 64
GOLDEN = Path(__file__).parent.parent / "golden" / "models"


class Refused(Exception):
    """The program ended with another status than 0."""


class Case:
    """One folder, what it should compute, and a place for files."""

    def __init__(self, program, folder, work, ids):
        self.program, self.folder, self.work, self.ids = program, folder, work, ids
        with all_double():
            self.model = load_model(folder, torch.float64)
            self.want = golden(copy_of(self.model, torch.float64), ids)
        self.prompt = list(map(int, ids[0, :-1]))
        self.encoder = encoders.is_encoder_decoder(self.model.config)
        self.new = min(NEW_TOKENS, self.context() - len(self.prompt))

    def context(self):
        config = self.model.config
        return getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", CONTEXT)

    def run(self, *args):
        done = subprocess.run([self.program, *map(str, args)], capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            raise Refused(f"exit {done.returncode}: {' | '.join(said[:3])}")
        return done.stdout

    def program_logits(self, folder, ids, name="logits.npy"):
        out = self.work / name
        self.run("generate", folder, "--ids", joined(ids), "--logits", out, "--json")
        return np.load(out)

    def exact_logits(self, ids, model=None):
        with all_double(), torch.no_grad():
            model = copy_of(model or self.model, torch.float64)
            return logits_of(model, torch.tensor([list(map(int, ids))]))[0].numpy()

    def next_logits(self, model, prompt, ids):
        """The logits by which a model chooses each of the ids that follow the prompt."""
        with torch.no_grad():
            if self.encoder:
                return encoders.logits_of(model, torch.tensor([prompt]), torch.tensor([ids]))[0].double().numpy()
            return logits_of(model, torch.tensor([prompt + ids]))[0, len(prompt) - 1:-1].double().numpy()

    def exact_next(self, prompt, ids):
        with all_double():
            return self.next_logits(copy_of(self.model, torch.float64), prompt, ids)

    def tie(self, exact, prompt, ids):
        """How near two logits are that either may win: where weights are bf16 activations are, too, in texts that are written; then
        as near as PyTorch's own bf16 is to the exact ones, twice."""
        if not is_bf16(self.folder):
            return TIE
        return max(TIE, 2 * np.abs(self.next_logits(copy_of(self.model, torch.bfloat16), prompt, ids) - exact).max())

    def decode(self, *prompt_args):
        """In fp32 where there are experts: with rounded keys and values a token can pick others."""
        exact = ("--precision", "fp32") if hasattr(self.model.config, "num_experts_per_tok") else ()
        text = self.run("generate", self.folder, *prompt_args, "--max-new", self.new, "--temperature", 0, "--json", *exact)
        return [json.loads(line)["ids"] for line in text.splitlines() if line.strip()]


def joined(ids):
    return ",".join(str(int(i)) for i in ids)


def fail_above(what, difference, limit):
    if not difference <= limit:
        raise AssertionError(f"{what}: {difference:.2e} > {limit:.0e}")
    return f"{difference:.0e}"


def check_logits(case):
    return fail_above("logits", relative_difference(case.program_logits(case.folder, case.prompt), case.want["logits"][0]),
                      LOGITS)


def check_grads(case, want=None, *options):
    want = want or case.want
    yaml, ids, out = case.work / "c.yaml", case.work / ("ids.npz" if case.encoder else "ids.npy"), case.work / "grads.safetensors"
    yaml.write_text(f"model: {{from: {case.folder}}}\n")
    if case.encoder:
        source, labels = encoders.pairs(case.ids)
        np.savez(ids, input_ids=source, labels=labels)
    else:
        np.save(ids, case.ids)
    said = case.run("train", yaml, "--dump-grads", out, "--ids-file", ids, "--json", *options)
    fail_above("loss", abs(json.loads(said)["loss"] / want["loss"][0] - 1), LOSS)
    got = safetensors.numpy.load_file(out)
    names = [n for n in want if n.startswith("grad.")]
    largest = max(np.abs(want[n]).max() for n in names)
    worst = 0.0
    for name in names:
        mine = got.get(name[5:], got.get(name))
        if mine is None or mine.shape != want[name].shape:
            raise AssertionError(f"{name}: {'missing' if mine is None else mine.shape}")
        if np.abs(want[name]).max() < 1e-7 * largest:  # nothing depends on it
            fail_above(name, np.abs(mine).max() / largest, 1e-6)
            continue
        worst = max(worst, float(fail_above(name, relative_difference(mine, want[name]), GRADS)))
    return f"{worst:.0e}"


def check_balance(case):
    """Every way of keeping the load of experts even, and the z-loss."""
    if not getattr(case.model, "num_experts", 0) or not hasattr(case.model.config, "router_aux_loss_coef"):
        return "-"
    worst = 0.0
    for balance in ("sequence", "global"):
        with all_double():
            want = golden(copy_of(case.model, torch.float64), case.ids, lambda m, x: experts.balance_by(m, x, balance, 0.05))
        worst = max(worst, float(check_grads(case, want, f"train.router.balance={balance}", "train.router.z_loss=0.05")))
    return f"{worst:.0e}"


def check_capacity(case):
    """Experts that take a share of the picks only, in loss and gradients."""
    if not experts.modules(case.model):
        return "-"
    worst = 0.0
    for factor in (1.25, 0.6):
        with all_double():
            model = copy_of(case.model, torch.float64)
            with experts.limited(model, case.ids.shape[0], case.ids.shape[1] - 1, factor) as shares:
                want = golden(model, case.ids)
        if factor < 1 and not max(shares) > 0.1:
            raise AssertionError(f"nothing is dropped: {shares}")
        worst = max(worst, float(check_grads(case, want, f"train.router.capacity_factor={factor}")))
    return f"{worst:.0e}"


def same_until_tie(case, ids, prompt):
    """Whether the greedy ids are the best ones at every step; counts steps before a near-tie went the other way."""
    logits = case.exact_next(prompt, ids)
    tie = case.tie(logits, prompt, ids)
    for t, (row, chosen) in enumerate(zip(logits, ids)):
        if row.max() - row[chosen] > tie:
            raise AssertionError(f"new token {t} is {chosen}, its logit {row.max() - row[chosen]:.2e} below that of "
                                 f"{row.argmax()}")
    return len(ids)


def decodes(check):
    """Some texts leave no room for new tokens."""
    return lambda case: check(case) if case.new > 0 else "-"


@decodes
def check_greedy(case):
    ids = case.decode("--ids", joined(case.prompt))[0]
    if len(ids) != case.new:
        raise AssertionError(f"{len(ids)} new ids instead of {case.new}")
    return same_until_tie(case, ids, case.prompt)


@decodes
def check_cache(case):
    if case.encoder:  # the program gives no logits of an answer to another text
        return "-"
    ids = case.decode("--ids", joined(case.prompt))[0]
    logits = case.program_logits(case.folder, case.prompt + ids)[len(case.prompt) - 1:-1]
    chosen = logits[np.arange(len(ids)), ids]
    tie = case.tie(case.exact_next(case.prompt, ids), case.prompt, ids)
    return fail_above("logits", float((logits.max(1) - chosen).max()), tie)


def check_beams(case):
    if not case.encoder or is_bf16(case.folder):  # whose activations are rounded, and beams are chosen by small differences
        return "-"
    options = dict(num_beams=3, max_new_tokens=16, length_penalty=1.3, no_repeat_ngram_size=2)
    said = case.run("generate", case.folder, "--ids", joined(case.prompt), "--beams", 3, "--max-new", 16, "--length-penalty", 1.3,
                    "--no-repeat-ngram", 2, "--json")
    got = json.loads(said)["beams"]
    with all_double(), torch.no_grad():
        texts, scores = encoders.beams(copy_of(case.model, torch.float64), case.prompt, options)
    if [b["ids"] for b in got] != texts:
        raise AssertionError(f"beams {[b['ids'] for b in got]} instead of {texts}")
    return fail_above("scores", max(abs(b["score"] - s) for b, s in zip(got, scores)), SCORES)


@decodes
def check_batch(case):
    if case.model.config.model_type == "llama" and "longrope" in str(case.model.config):
        return "-"  # the short rows would be on the other side
    rows = [case.prompt, case.prompt[:3], case.prompt[5:17], case.prompt[:1]]
    path = case.work / "batch.jsonl"
    path.write_text("".join(json.dumps(dict(ids=row)) + "\n" for row in rows))
    for row, got in zip(rows, case.decode("--batch", path)):
        same_until_tie(case, got, row)
    return "same"


def check_causal(case):
    if case.encoder:  # each token of a source sees all others
        return "-"
    before = case.program_logits(case.folder, case.prompt)
    at = len(case.prompt) * 2 // 3
    changed = list(case.prompt)
    changed[at] = (changed[at] + 1) % case.model.config.vocab_size
    after = case.program_logits(case.folder, changed)
    fail_above("before", np.abs(before[:at] - after[:at]).max(), 0)
    if np.array_equal(before[at:], after[at:]):
        raise AssertionError("a token does not matter")
    return "same"


def is_bf16(folder):
    return any(name.endswith("bfloat16") for name in tensors_of(folder))


def tensors_of(folder):
    """Bits by name and dtype."""
    out = {}
    for path in sorted(folder.glob("model*.safetensors")):
        for name, t in safetensors.torch.load_file(path).items():
            bits = {2: torch.int16, 4: torch.int32}[t.element_size()]
            out[f"{name} {t.dtype}"] = t.view(bits).numpy()
    return out


def paired_to_halves(config, tensors):
    """Query and key rows of each head from pairs (2i, 2i+1) to halves (i, i + D/2)."""
    width = config.hidden_size // config.num_attention_heads
    return {n: t.reshape(-1, width // 2, 2, t.shape[1]).swapaxes(1, 2).reshape(t.shape)
            if "q_proj" in n or "k_proj" in n else t for n, t in tensors.items()}


def same_tensors(case, folder):
    a, b = tensors_of(case.folder), tensors_of(folder)
    config = json.loads((folder / "config.json").read_text())
    if getattr(case.model.config, "rope_interleaved", False) and not config.get("rope_interleaved"):
        a = paired_to_halves(case.model.config, a)
    if a.keys() != b.keys():
        raise AssertionError(f"other tensors: {sorted(a.keys() ^ b.keys())[:4]}")
    for name in a:
        if a[name].tobytes() != b[name].tobytes():
            raise AssertionError(f"{name} changed")


def check_export(case):
    out = case.work / "hf"
    case.run("export", case.folder, "-o", out, "--to", "hf")
    same_tensors(case, out)
    with all_double():
        model = load_model(out, torch.float64)
    return fail_above("logits", relative_difference(case.exact_logits(case.prompt, model), case.want["logits"][0]), 1e-6)


def check_import(case):
    out = case.work / "imported"
    case.run("import", case.folder, "-o", out)
    same_tensors(case, out)
    return "same"


def write_gguf(case):
    """The file, or None where llama.cpp has no such model."""
    out = case.work / "model.gguf"
    if out.exists():
        return out
    try:
        case.run("export", case.folder, "-o", out, "--to", "gguf", "--dtype", "F16")
    except Refused as e:
        if "llama.cpp" in str(e):
            return None
        raise
    return out


def fits_in_gguf(case):
    """A file of Qwen v1 ends at the trained length, beyond which llama.cpp does not scale."""
    return len(case.prompt) <= min(case.context(), getattr(case.model.config, "seq_length", case.context()))


def check_gguf(case):
    out = write_gguf(case)
    if out is None or not fits_in_gguf(case):
        return "-"
    return fail_above("logits", relative_difference(case.program_logits(out, case.prompt), case.want["logits"][0]), GGUF)


def llamacpp_logits(path, ids):
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    if not model:
        raise ValueError("llama.cpp does not load the file")
    options = llama_cpp.llama_context_default_params()
    options.n_ctx = options.n_batch = options.n_ubatch = 256
    options.n_threads = 1
    options.type_k = options.type_v = 0  # fp32
    options.flash_attn_type = 0  # which would turn them into F16
    context = llama_cpp.llama_init_from_model(model, options)
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
        batch.seq_id[i][0] = 0
    batch.n_tokens = len(ids)
    if llama_cpp.llama_decode(context, batch) != 0:
        raise ValueError("llama.cpp does not run the file")
    columns = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    out = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), shape=(len(ids) * columns,)).copy()
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return out.reshape(len(ids), columns)


def check_llamacpp(case):
    # It knows no dynamic scaling, and of longrope it takes the factors by the length of its context.
    # It rotates neither parts of heads that begin at an odd column, nor behind a latent of odd width.
    config = case.model.config
    odd = getattr(config, "qk_nope_head_dim", 0) % 2 or getattr(config, "kv_lora_rank", 0) % 2
    out = None if llama_cpp is None or odd or re.search("longrope|['\"]dynamic", str(config)) else write_gguf(case)
    if out is None or not fits_in_gguf(case):
        return "-"
    return fail_above("logits", relative_difference(llamacpp_logits(out, case.prompt), case.want["logits"][0]), GGUF)


CHECKS = dict(logits=check_logits, grads=check_grads, balance=check_balance, capacity=check_capacity, greedy=check_greedy,
              cache=check_cache, beams=check_beams, batch=check_batch, causal=check_causal, export=check_export, gguf=check_gguf)
CHECKS |= {"import": check_import, "llamacpp": check_llamacpp}


def save_as(model, draw, folder):
    """In one of the formats, in one file or in shards. transformers renames the tensors of some models as it saves."""
    dtype = draw.one(torch.float32, torch.float32, torch.bfloat16, torch.float16)
    if isinstance(model.config, Config):
        model.to(dtype).save_pretrained(folder)
    else:
        model.to(dtype).save_pretrained(folder, max_shard_size=draw.one("20KB", "5GB"))


def save_random(family, seed, folder):
    """A random model's folder, and ids for it."""
    rng = np.random.default_rng([seed, *family.encode()])
    draw = Draw(rng)
    model = new_model(FAMILIES[family](draw))
    fill(model, rng, matrix=0.18)
    save_as(model, draw, folder)
    if draw.flag() and not isinstance(model.config, Config):
        path = folder / "config.json"
        path.write_text(json.dumps(as_version_4(json.loads(path.read_text()), draw.one("type", "rope_type")), indent=2))
    return draw_ids(rng, draw.int(1, 3), draw.int(20, 45) + 1, draw.vocab)


def cases(args, work):
    """(row name, folder, ids, working folder)"""
    if args.golden:
        for folder in sorted(p for p in GOLDEN.iterdir() if p.is_dir()):
            if not args.families or folder.name in args.families:
                yield folder.name, folder, np.load(folder / "ids.npy"), work / folder.name
        return
    for family in args.families or FAMILIES:
        for seed in range(args.first, args.first + args.seeds):
            place = work / f"{family}-{seed}"
            folder = place / "model"
            folder.mkdir(parents=True, exist_ok=True)
            yield f"{family} {seed}", folder, save_random(family, seed, folder), place


def run_checks(case, checks, notes, row):
    results = []
    for name in checks:
        try:
            results.append(str(CHECKS[name](case)))
        except (Refused, AssertionError, ValueError, OSError, KeyError, subprocess.TimeoutExpired) as e:
            results.append("FAIL")
            if isinstance(e, Refused) and notes and notes[-1].startswith(row) and notes[-1].endswith(str(e)):
                continue  # said already
            notes.append(f"{row} {name}: {e}")
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--families", type=lambda s: s.split(","))
    parser.add_argument("--checks", type=lambda s: s.split(","), default=list(CHECKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--golden", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    notes, failed = [], 0
    with tempfile.TemporaryDirectory() as temporary:
        work = args.keep or Path(temporary)
        print(f"{'':22}" + "".join(f"{c:>9}" for c in args.checks))
        for row, folder, ids, place in cases(args, work):
            place.mkdir(parents=True, exist_ok=True)
            try:
                results = run_checks(Case(args.program, folder, place, ids), args.checks, notes, row)
            except Exception:  # the reference itself failed
                results = ["ORACLE"]
                notes.append(f"{row}: {traceback.format_exc(limit=-2)}")
            failed += any(r in ("FAIL", "ORACLE") for r in results)
            print(f"{row:22}" + "".join(f"{r:>9}" for r in results), flush=True)
    print("\n".join(notes))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
