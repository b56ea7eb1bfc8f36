"""Scores of a model with an encoder beside those of lm-evaluation-harness (HFLM, backend seq2seq).

    check_encoder_eval.py ATHANOR FOLDER TASK [COUNT]      needs: pip install lm-eval transformers torch

FOLDER is a T5 folder with a tokenizer, TASK a folder of OLMES requests. Log-likelihoods of the first COUNT documents must agree
to 1e-4 of their size."""
import gzip
import json
import os
import subprocess
import sys
import tempfile

from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

program, folder, task = sys.argv[1:4]
count = int(sys.argv[4]) if len(sys.argv) > 4 else 20
asked = {}
with gzip.open(os.path.join(task, "requests.jsonl.gz"), "rt") as f:
    for line in f:
        r = json.loads(line)
        if r["doc_id"] < count and r["request_type"] == "loglikelihood":
            asked[r["doc_id"], r["idx"]] = (r["request"]["context"], r["request"]["continuation"])

with tempfile.TemporaryDirectory() as tmp:
    out = os.path.join(tmp, "samples.jsonl")
    subprocess.run([program, "eval", folder, "--tasks", task, "--limit", str(count), "--samples", out,
                    "--no-unconditional", "--precision", "fp32"], check=True)
    ours = {(d["doc_id"], i): x for d in map(json.loads, open(out)) for i, x in enumerate(d["loglik"])}

peer = HFLM(pretrained=folder, backend="seq2seq", dtype="float32", device="cpu", batch_size=1)
keys = sorted(k for k in ours if k in asked)
assert len(keys) == len(ours) > 0, (len(keys), len(ours))
theirs = peer.loglikelihood([Instance("loglikelihood", {}, asked[k], i) for i, k in enumerate(keys)])
worst = max(abs(ours[k] - t[0]) / max(1, abs(t[0])) for k, t in zip(keys, theirs))
print(f"{len(keys)} requests: largest relative difference {worst:.2e}")
sys.exit(worst > 1e-4)
