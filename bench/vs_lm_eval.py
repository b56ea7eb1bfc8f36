#!/usr/bin/env python3
"""athanor eval beside lm-evaluation-harness (HFLM, transformers) on the same OLMES requests and the same model.

Compares every log-likelihood and every document's answer under acc, acc_norm and acc_mutual_info, and times both.
With --rounds both take turns, lm-eval at each of its --batch-size in every round; ratios are those to the fastest of
these, medians over the rounds. TASK: a folder of OLMES, or llama.cpp's text file of HellaSwag (.txt.bz2).
With --url the same requests also go through a server of OpenAI's API (lm-eval's local-completions, by the server's own
tokenizer where it offers one), and its log-likelihoods are compared with both.
pip: lm-eval, transformers, torch; lm-eval[api] for --url.

    bench/vs_lm_eval.py --athanor build/athanor --model FOLDER --limit 500 --batch-size 16 TASK...
    bench/vs_lm_eval.py --athanor build/athanor --model BF16_FOLDER --precision bf16 --dtype bfloat16 \\
        --batch-size 8,32 --rounds 3 --tolerance 2 --threads 1 TASK
    bench/vs_lm_eval.py --athanor build/athanor --model FOLDER --limit 100 --url http://127.0.0.1:8080/v1 TASK...
"""
import argparse
import bz2
import gzip
import json
import os
import subprocess
import tempfile
import time
import urllib.request

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
    keep_scores(args, docs, "theirs", scores)
    return seconds


def keep_scores(args, docs, who, scores):
    scores = iter(scores)
    for d in docs.values():
        d[who] = [next(scores) for _ in d["pairs"]]
        d[who + "_alone"] = [] if args.no_alone else [next(scores) for _ in d["alone"]]


def open_harness(args, batch_size):
    import torch
    from lm_eval.models.huggingface import HFLM

    torch.set_num_threads(args.threads)
    return HFLM(pretrained=args.model, dtype=args.dtype, device="cpu", batch_size=batch_size)


def open_served(args):
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    with urllib.request.urlopen(args.url + "/models") as reply:
        name = json.load(reply)["data"][0]["id"]
    return LocalCompletionsAPI(base_url=args.url + "/completions", model=name, batch_size=int(args.batch_size[0]),
                               num_concurrent=args.concurrent, max_length=args.max_length)


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


def compare(docs, who, other, tolerance, result=None):
    """Of two that have scored the documents; result: what `athanor eval` made of the scores of `other`."""
    worst, differing, right = 0.0, [], {}
    for key, d in docs.items():
        a = answers(d, d[who], d[who + "_alone"])
        b = answers(d, d[other], d[other + "_alone"] if d[who + "_alone"] else [])
        worst = max([worst] + [abs(x - y) for x, y in zip(d[who] + d[who + "_alone"], d[other] + d[other + "_alone"])])
        for metric, answer in a.items():
            right.setdefault(metric, []).append(answer == d["gold"])
            if answer != b[metric]:
                differing.append((key, metric, d[other], d[who]))
    for metric, hits in right.items():
        print(f"  {metric}: {who} {np.mean(hits):.4f}" + (f", {other} {result[metric + ',none']:.4f}" if result else ""))
    for item in differing:
        print("  differs:", *item)
    print(f"  {who} and {other}: largest difference of a log-likelihood: {worst:.2e}", flush=True)
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
    p.add_argument("--url", help="of a server that serves the same model: http://HOST:PORT/v1")
    p.add_argument("--concurrent", type=int, default=16, help="requests to the server at a time")
    p.add_argument("--max-length", type=int, default=2048, help="tokens of a text, for the server")
    p.add_argument("folders", nargs="+")
    args = p.parse_args()
    served = open_served(args) if args.url else None
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
        good &= compare(docs, "theirs", "ours", args.tolerance, result)
        if served:
            scores, seconds = score_by_harness(args, docs, served)
            keep_scores(args, docs, "served", scores)
            print(f"  through the server {seconds[0]:.1f} s")
            good &= compare(docs, "served", "ours", args.tolerance, result)
            good &= compare(docs, "served", "theirs", args.tolerance)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
