"""Our logits of a GGUF file against llama.cpp's on the same ids of a text.

    python compare_llama_cpp.py ATHANOR MODEL TEXT [--llama OTHER.gguf] [--positions 2000]

MODEL is what athanor runs (a .gguf file or a folder), --llama the file that llama.cpp runs (MODEL
itself when omitted): an F16 file that athanor wrote, say. Prints the mean KL divergence of
llama.cpp's distribution from ours, and how often both take the same token. Needs numpy and
llama-cpp-python (0.3.36 was used).
"""
import argparse
import json
import subprocess
import tempfile

import numpy as np
from llama_cpp import Llama


def ours(athanor, model, ids):
    with tempfile.NamedTemporaryFile(suffix=".npy") as out:
        subprocess.run([athanor, "generate", model, "--ids", ",".join(map(str, ids)),
                        "--logits", out.name, "--json"], check=True, stdout=subprocess.PIPE)
        return np.load(out.name).astype(np.float64)


def theirs(llm, ids):
    llm.reset()
    llm.eval(ids)
    return np.array(llm.scores[:len(ids)], dtype=np.float64)


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("athanor"), p.add_argument("model"), p.add_argument("text")
    p.add_argument("--llama"), p.add_argument("--positions", type=int, default=2000)
    p.add_argument("--window", type=int, default=500)
    a = p.parse_args()
    llm = Llama(a.llama or a.model, n_ctx=a.window + 1, n_batch=a.window + 1, logits_all=True,
                n_threads=2, verbose=False)
    text = open(a.text, encoding="utf-8", errors="replace").read()[:20 * a.positions]
    ids = llm.tokenize(text.encode(), add_bos=True, special=False)[:a.positions]
    mine = json.loads(subprocess.run([a.athanor, "tok", "encode", a.llama or a.model, "--json"],
                                     input=text.encode(), check=True,
                                     stdout=subprocess.PIPE).stdout)["ids"]
    skip = int(ids[0] == llm.token_bos())  # the token that begins a text
    if skip and mine[0] == ids[0]:
        mine = mine[1:]
    same_ids = mine[:len(ids) - skip] == ids[skip:]
    kl, agree = [], []
    first, ids = ids[:skip], ids[skip:]  # each window begins as a text does
    for at in range(0, len(ids), a.window):
        part = first + ids[at:at + a.window]
        q, p_ = log_softmax(ours(a.athanor, a.model, part)), log_softmax(theirs(llm, part))
        kl.append((np.exp(p_) * (p_ - q)).sum(-1))
        agree.append(q.argmax(-1) == p_.argmax(-1))
    kl, agree = np.concatenate(kl), np.concatenate(agree)
    print(json.dumps({"positions": len(kl), "kl_mean": kl.mean(), "kl_max": kl.max(),
                      "top1": agree.mean(), "same_ids": bool(same_ids)}))


if __name__ == "__main__":
    main()
