#!/usr/bin/env python3
"""LoRA beside TRL and PEFT: tokens a second and peak memory of teaching the same model with the same batch and length.

Both train adapters of one rank on all linear layers, AdamW, on the same number of random tokens. TRL's SFTTrainer runs
in fp32 and in bf16, and the faster of the two counts for speed, the smaller for memory. Runs alternate; each is a process of
its own, and its peak is what the system counted (ru_maxrss). Where other programs share the machine, processor seconds a token
say more than tokens a second: both are given.
pip: torch, transformers, peft, trl.

    bench/vs_peft.py --athanor build/athanor --model FOLDER [--batch 4] [--length 256] [--rank 8] [--steps 5] [--rounds 3]
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time


def child_trl(args):
    """One process: trains a few steps, and prints what they took, without the first."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    torch.set_num_threads(args.threads)
    dtype = torch.bfloat16 if args.child == "bf16" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=dtype)
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(0, model.config.vocab_size, (args.batch * (args.steps + 1), args.length), generator=generator)
    data = Dataset.from_dict({"input_ids": rows.tolist()})
    times = []

    class Clock(TrainerCallback):
        def on_step_begin(self, a, state, control, **kw):
            times.append([time.perf_counter(), time.process_time()])

        def on_step_end(self, a, state, control, **kw):
            times[-1] = [time.perf_counter() - times[-1][0], time.process_time() - times[-1][1]]

    with tempfile.TemporaryDirectory() as out:
        config = SFTConfig(output_dir=out, per_device_train_batch_size=args.batch, max_steps=args.steps + 1,
                           max_length=args.length, learning_rate=1e-4, lr_scheduler_type="constant", logging_strategy="no",
                           save_strategy="no", report_to=[], use_cpu=True, bf16=args.child == "bf16",
                           gradient_checkpointing=args.checkpointing,
                           dataset_kwargs={"skip_prepare_dataset": True})
        lora = LoraConfig(r=args.rank, lora_alpha=2 * args.rank, target_modules="all-linear", task_type="CAUSAL_LM")
        tokenizer = AutoTokenizer.from_pretrained(args.model)
        trainer = SFTTrainer(model=model, args=config, train_dataset=data, peft_config=lora, processing_class=tokenizer,
                             callbacks=[Clock()])
        trainer.train()
    tokens = args.batch * args.length
    wall, cpu = (statistics.median(t[i] for t in times[1:]) for i in (0, 1))
    print(json.dumps(dict(tok_per_s=tokens / wall, cpu_ms_per_tok=1e3 * cpu / tokens,
                          peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)))


def spawn(command):
    """Its standard output; the peak and the processor time of the process."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            errors.seek(0)
            sys.exit(f"{' '.join(command)} failed:\n{errors.read()[-2000:]}")
    return out, usage


def run_trl(args, precision):
    out, usage = spawn([sys.executable, os.path.abspath(__file__), "--child", precision] + sys.argv[1:])
    return json.loads(out.strip().splitlines()[-1])


def run_athanor(args, precision, data):
    """The steps of a run; processor time is that of a run of twice the steps less that of one."""
    def steps(n):
        with tempfile.TemporaryDirectory() as run:
            out, usage = spawn([
                args.athanor, "train", data + "/c.yaml", "run=" + run + "/r", f"train.steps={n}", "--json",
                f"train.precision={precision}", f"train.threads={args.threads}"])
            events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
            ms = [e["step_ms"] for e in events if e["event"] == "step"][1:]
            return statistics.median(ms or [0]), usage
    tokens = args.batch * args.length
    ms, usage = steps(args.steps + 1)
    _, one = steps(1)
    cpu = usage.ru_utime + usage.ru_stime - one.ru_utime - one.ru_stime
    return dict(tok_per_s=1e3 * tokens / ms, cpu_ms_per_tok=1e3 * cpu / tokens / args.steps, peak_mib=usage.ru_maxrss / 1024)


def make_data(args, folder):
    import numpy as np
    vocab = json.load(open(os.path.join(args.model, "config.json")))["vocab_size"]
    n = args.batch * (args.length + 1) * (args.steps + 2)
    np.random.default_rng(1).integers(0, vocab, n).astype(np.uint16).tofile(folder + "/train.bin")
    with open(folder + "/c.yaml", "w") as f:
        f.write(f"""run: r
model: {{from: {os.path.abspath(args.model)}}}
data: {{train: [{{path: {folder}/train.bin, format: nanogpt}}], document_mask: false}}
train: {{steps: 2, seq_len: {args.length}, global_batch_size: {args.batch}, micro_batch_size: {args.batch}}}
lora: {{rank: {args.rank}, alpha: {2 * args.rank}}}
optim: {{lr: 1.0e-4, schedule: {{kind: constant}}}}
checkpoint: {{every: 0, async: false}}
""")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--athanor", default="build/athanor")
    p.add_argument("--model", required=True)
    for name, value in (("batch", 4), ("length", 256), ("rank", 8), ("steps", 5), ("rounds", 3),
                        ("threads", os.cpu_count())):
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--precisions", default="fp32,bf16")
    p.add_argument("--checkpointing", action="store_true", help="TRL with gradient checkpointing, its default")
    p.add_argument("--child", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.child:
        child_trl(args)
        return
    found = {}
    with tempfile.TemporaryDirectory() as data:
        make_data(args, data)
        for _ in range(args.rounds):
            for precision in args.precisions.split(","):
                for who, run in (("athanor", lambda: run_athanor(args, precision, data)),
                                 ("trl+peft", lambda: run_trl(args, precision))):
                    r = run()
                    found.setdefault((who, precision), []).append(r)
                    print(f"{who:9} {precision}  {r['tok_per_s']:8.1f} tok/s  {r['cpu_ms_per_tok']:8.2f} ms of processor a token"
                          f"  {r['peak_mib']:8.0f} MiB", flush=True)
    def best(who, key, pick):
        return pick(statistics.median(r[key] for r in runs) for (w, _), runs in found.items() if w == who)
    print(f"tokens a second: {best('athanor', 'tok_per_s', max) / best('trl+peft', 'tok_per_s', max):.2f} of TRL+PEFT's; "
          f"processor time a token: {best('athanor', 'cpu_ms_per_tok', min) / best('trl+peft', 'cpu_ms_per_tok', min):.2f}; "
          f"peak memory: {best('athanor', 'peak_mib', min) / best('trl+peft', 'peak_mib', min):.2f}")


if __name__ == "__main__":
    main()
