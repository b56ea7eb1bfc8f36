"""Every golden model as an F32 GGUF file, run by llama.cpp and by athanor on the same ids.

    python families_in_llama_cpp.py ATHANOR [NAME...]

Prints the largest difference of logits relative to the largest logit, and how often both take the
same token; or why there is no such file. llama.cpp's cache is F32 here, and its flash attention is
off, which would turn keys and values into F16: either moves logits by 1e-3, enough to turn near
ties of tokens or experts. Its GELU is a table in F16, so 1e-3 is what agreement looks like there,
and 1e-5 elsewhere. It chooses between the two lists of longrope by the size of its context,
athanor by that of the pass. Needs numpy and llama-cpp-python (0.3.36 was used).
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
from llama_cpp import Llama

MODELS = os.path.join(os.path.dirname(__file__), "..", "golden", "models")


def adapted(config):
    """The golden models are odd on purpose; llama.cpp fixes some things by architecture."""
    if config["model_type"] == "minicpm3":
        config["scale_emb"], config["dim_model_base"] = 12, 256
    if config["model_type"].startswith("gemma"):
        config["query_pre_attn_scalar"] = config["head_dim"]
    if config["model_type"] == "smollm3":
        layers = range(config["num_hidden_layers"])
        config["no_rope_layers"] = [int((i + 1) % 4 != 0) for i in layers]
    return config


def compare(athanor, name, tmp):
    source, folder, gguf, out = (os.path.join(*p) for p in
                                 ((MODELS, name), (tmp, "hf"), (tmp, "m.gguf"), (tmp, "l.npy")))
    os.mkdir(folder)
    shutil.copy(os.path.join(source, "model.safetensors"), folder)
    with open(os.path.join(source, "config.json")) as f:
        config = adapted(json.load(f))
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    made = subprocess.run([athanor, "export", folder, "-o", gguf, "--to", "gguf", "--dtype", "F32",
                           "--no-verify"], capture_output=True, text=True)
    if made.returncode:
        return made.stderr.splitlines()[0]
    ids = np.load(os.path.join(source, "ids.npy"))[0][:-1].tolist()
    subprocess.run([athanor, "generate", gguf, "--ids", ",".join(map(str, ids)), "--logits", out],
                   check=True, stdout=subprocess.DEVNULL)
    ours = np.load(out).astype(np.float64)
    llm = Llama(gguf, n_ctx=max(len(ids), 64), n_batch=512, logits_all=True, n_threads=2,
                verbose=False, type_k=0, type_v=0)
    llm.eval(ids)
    theirs = np.array(llm.scores[:len(ids)], dtype=np.float64)
    return "difference %.2g, same token %.4f" % (
        abs(ours - theirs).max() / abs(theirs).max(),
        (ours.argmax(-1) == theirs.argmax(-1)).mean())


def main():
    athanor, names = sys.argv[1], sys.argv[2:]
    if not names:
        names = sorted(n for n in os.listdir(MODELS) if os.path.isdir(os.path.join(MODELS, n)))
    for name in names:
        with tempfile.TemporaryDirectory() as tmp:
            try:
                result = compare(athanor, name, tmp)
            except subprocess.CalledProcessError as e:
                result = f"athanor failed with {e.returncode}"
        print(f"{name}: {result}", flush=True)


if __name__ == "__main__":
    main()
