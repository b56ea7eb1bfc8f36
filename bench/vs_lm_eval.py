#!/usr/bin/env python3
"""athanor eval beside lm-evaluation-harness (HFLM, transformers) on the same OLMES requests and the same model.

Compares every log-likelihood and every document's answer under acc, acc_norm and acc_mutual_info, and times both.
With --rounds both take turns, lm-eval at each of its --batch-size in every round; ratios are those to the fastest of
these, medians over the rounds. TASK: a folder of OLMES, or llama.cpp's text file of HellaSwag (.txt.bz2).
pip: lm-eval, transformers, torch.

    bench/vs_lm_eval.py --athanor build/athanor --model FOLDER --limit 500 --batch-size 16 TASK...
    bench/vs_lm_eval.py --athanor build/athanor --model BF16_FOLDER --precision bf16 --dtype bfloat16 \\
        --batch-size 8,32 --rounds 3 --tolerance 2 --threads 1 TASK
"""
import argparse
import bz2
import gzip
import json
import os
import subprocess
import tempfile
import time

import numpy as np


def read_documents(folder, limit):
    """{doc_id: {"gold", "pairs", "alone", "labels"}} of the first documents."""
    docs = {}
    with gzip.open(os.path.join(folder, "requests.jsonl.gz"), "rt") as f:
        for line in f:
            o = json.loads(line)
            alone = o["doc_id"] >= 1000000
            key = o["doc_id"] - 1000000 * alone
            if key not in docs and (alone or len(docs) == limit):
                continue
            d = docs.setdefault(key, {"gold": o["label"], "pairs": [], "alone": [], "labels": []})
            pair = (o["request"]["context"], o["request"]["continuation"])
            d["alone" if alone else "pairs"].append(pair)
            if not alone:
                choices = o["doc"].get("choices")
                d["labels"].append(choices[o["idx"]] if choices else pair[1].removeprefix(" "))
    return docs


def write_hellaswag(path, folder, limit):
    """Six lines a document: context, number of the right ending, four endings."""
    lines = bz2.open(path, "rt").read().split("\n")
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump({"task_name": "hellaswag"}, f)
    with gzip.open(os.path.join(folder, "requests.jsonl.gz"), "wt") as f:
        for doc in range(min(limit, len(lines) // 6)):
            context, gold, *endings = lines[6 * doc:6 * doc + 6]
            for i, ending in enumerate(endings):
                request = {"context": context, "continuation": " " + ending}
                print(json.dumps({"request_type": "loglikelihood", "doc": {"choices": endings}, "request": request,
                                  "idx": i, "doc_id": doc, "label": int(gold)}), file=f)


def run_harness(args, folder, docs):
    """Scores, or reads them from the folder --keep, where an earlier run left them."""
    kept = None
    if args.keep:
        name = "-".join(folder.strip("/").split("/")[-2:] + [str(len(docs)), args.dtype, str(args.no_alone)])
        kept = os.path.join(args.keep, name + ".json")
    if kept and os.path.exists(kept):
        scores, seconds = json.load(open(kept))
    else:
        scores, seconds = score_by_harness(args, docs)
        if kept:
            json.dump([scores, seconds], open(kept, "w"))
    scores = iter(scores)
    for d in docs.values():
        d["theirs"] = [next(scores) for _ in d["pairs"]]
        d["theirs_alone"] = [] if args.no_alone else [next(scores) for _ in d["alone"]]
    return seconds


def open_harness(args, batch_size):
    import torch
    from lm_eval.models.huggingface import HFLM

    torch.set_num_threads(args.threads)
    return HFLM(pretrained=args.model, dtype=args.dtype, device="cpu", batch_size=batch_size)


def score_by_harness(args, docs, lm=None):
    from lm_eval.api.instance import Instance

    lm = lm or open_harness(args, args.batch_size[0])
    pairs = [p for d in docs.values() for p in d["pairs"] + ([] if args.no_alone else d["alone"])]
    requests = [Instance("loglikelihood", {}, p, i) for i, p in enumerate(pairs)]
    began = time.monotonic(), time.process_time()
    scores = [s for s, _ in lm.loglikelihood(requests, disable_tqdm=True)]
    return scores, (time.monotonic() - began[0], time.process_time() - began[1])


def take_turns(args, folder, docs):
    """Medians over the rounds of: lm-eval's time at its fastest, by clock and by processor, over athanor's."""
    harnesses = [open_harness(args, size) for size in args.batch_size]
    ratios = []
    for number in range(args.rounds):
        ours, _ = run_athanor(args, folder, docs)
        theirs = [score_by_harness(args, docs, lm)[1] for lm in harnesses]
        ratios.append([min(t[i] for t in theirs) / ours[i] for i in (0, 1)])
        print(f"  round {number}: athanor {ours[0]:.1f} s (cpu {ours[1]:.1f}); lm-eval " +
              ", ".join(f"{size} at a time {t[0]:.1f} (cpu {t[1]:.1f})" for size, t in zip(args.batch_size, theirs)),
              flush=True)
    return np.median(ratios, axis=0)


def run_athanor(args, folder, docs):
    with tempfile.TemporaryDirectory() as tmp:
        out = os.path.join(tmp, "samples.jsonl")
        command = [args.athanor, "eval", args.model, "--tasks", folder, "--limit", str(args.limit), "--samples", out,
                   "--threads", str(args.threads), "--precision", args.precision, "--json"]
        if args.no_alone:
            command.append("--no-unconditional")
        before = os.times()
        result = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        after = os.times()
        for line in open(out):
            o = json.loads(line)
            d = docs[o["doc_id"]]
            d["ours"], d["ours_alone"] = o["loglik"], o.get("loglik_unconditional", [])
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return (result["seconds"], cpu), next(iter(result["results"].values()))


def answers(d, scores, alone):
    scores = np.array(scores)
    found = {"acc": int(np.argmax(scores)),
             "acc_norm": int(np.argmax(scores / np.array([float(len(s)) for s in d["labels"]])))}
    if alone:
        found["acc_mutual_info"] = int(np.argmax(scores - np.array(alone)))
    return found


def compare(folder, docs, result, tolerance):
    worst, differing, right = 0.0, [], {}
    for key, d in docs.items():
        ours = answers(d, d["ours"], d["ours_alone"] if d["theirs_alone"] else [])
        theirs = answers(d, d["theirs"], d["theirs_alone"])
        all_ours, all_theirs = d["ours"] + d["ours_alone"], d["theirs"] + d["theirs_alone"]
        worst = max([worst] + [abs(a - b) for a, b in zip(all_ours, all_theirs)])
        for metric, answer in theirs.items():
            right.setdefault(metric, []).append(answer == d["gold"])
            if answer != ours[metric]:
                differing.append((key, metric, d["ours"], d["theirs"]))
    for metric, hits in right.items():
        print(f"  {metric}: theirs {np.mean(hits):.4f}, ours {result[metric + ',none']:.4f}")
    for item in differing:
        print("  differs:", *item)
    print(f"  largest difference of a log-likelihood: {worst:.2e}")
    return worst <= tolerance and not differing


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--athanor", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--limit", type=int, default=500)
    p.add_argument("--batch-size", default="16", type=lambda s: s.split(","), help="of lm-eval, some with --rounds")
    p.add_argument("--dtype", default="float32", help="of lm-eval")
    p.add_argument("--precision", default="fp32", help="of athanor")
    p.add_argument("--rounds", type=int, default=0, help="time both in turns, so many times")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--no-alone", action="store_true", help="leave out unconditional requests")
    p.add_argument("--tolerance", type=float, default=1e-3)
    p.add_argument("--keep", help="a folder that keeps the harness's scores for the next comparison")
    p.add_argument("folders", nargs="+")
    args = p.parse_args()
    good = True
    made = tempfile.TemporaryDirectory()
    for folder in args.folders:
        if folder.endswith(".txt.bz2"):
            write_hellaswag(folder, made.name, args.limit)
            folder = made.name
        docs = read_documents(folder, args.limit)
        if args.rounds:
            ratio = take_turns(args, folder, docs)
            print(f"{folder}: median of {args.rounds} rounds {ratio[0]:.2f} (cpu {ratio[1]:.2f})", flush=True)
        theirs = run_harness(args, folder, docs)
        ours, result = run_athanor(args, folder, docs)
        print(f"{folder}: {len(docs)} documents; athanor {ours[0]:.1f} s (cpu {ours[1]:.1f}), "
              f"lm-eval {theirs[0]:.1f} s (cpu {theirs[1]:.1f}); ratio {theirs[0] / ours[0]:.2f} "
              f"(cpu {theirs[1] / ours[1]:.2f})", flush=True)
        good &= compare(folder, docs, result, args.tolerance)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
