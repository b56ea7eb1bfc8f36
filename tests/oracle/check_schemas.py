"""Answers under random JSON Schemas, by a model at temperature 1, checked by PyPI's jsonschema.

    check_schemas.py PROGRAM MODEL [N=500] [FIRST SEED=1] [MAX NEW=400]

With MODEL `random` a folder with random weights is made of the tokenizer in a second folder: `random:FOLDER`. Needs
jsonschema and rfc3339-validator, and numpy and safetensors for random weights."""
import collections
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import jsonschema

from random_schemas import Schemas


def random_model(folder, tokenizer):
    import numpy as np
    from safetensors.numpy import save_file
    shutil.copy(pathlib.Path(tokenizer) / "tokenizer.json", folder)
    shutil.copy(pathlib.Path(tokenizer) / "tokenizer_config.json", folder)
    V, C = json.loads((pathlib.Path(tokenizer) / "config.json").read_text())["vocab_size"], 16
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": V, "hidden_size": C, "intermediate_size": C, "eos_token_id": 2,
              "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(0)
    shapes = {"model.embed_tokens.weight": (V, C), "model.norm.weight": (C,)}
    for name, shape in {"input_layernorm": (C,), "post_attention_layernorm": (C,), "self_attn.q_proj": (C, C), "self_attn.k_proj": (C, C),
                        "self_attn.v_proj": (C, C), "self_attn.o_proj": (C, C), "mlp.gate_proj": (C, C), "mlp.up_proj": (C, C), "mlp.down_proj": (C, C)}.items():
        shapes[f"model.layers.0.{name}.weight"] = shape
    save_file({k: (rng.standard_normal(s) * 0.5).astype(np.float32) for k, s in shapes.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def answer(program, model, schema, seed, most, path):
    path.write_text(json.dumps(schema))
    done = subprocess.run([program, "generate", model, "--prompt", "The answer in JSON:\n", "--schema", path, "--json", "--max-new", str(most),
                           "--temperature", "1", "--top-p", "1", "--seed", str(seed)], capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout or "null") or {"error": done.stderr}


def main():
    program, model = sys.argv[1:3]
    n, first, most = (int(x) for x in (sys.argv[3:] + ["500", "1", "400"][len(sys.argv) - 3:]))
    count = collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if model.startswith("random:"):
            model = random_model(folder, model.split(":", 1)[1])
        seed, began = first, time.monotonic()
        while count["answers"] < n:
            schema = Schemas(seed).whole()
            code, out = answer(program, model, schema, seed, most, folder / "schema.json")
            seed += 1
            if code == 2:
                what = out["error"] if isinstance(out["error"], str) else out["error"]["message"]
                count["refused: " + what.split(": ", 1)[1][:60].split("\n")[0] if ": " in what else what] += 1
                continue
            count["answers"] += 1
            problem = None
            if code != 0:
                problem = f"exit {code}: {out}"
            else:
                count[out["finish"]] += 1
                count["tokens"] += len(out["ids"])
                if out["finish"] == "length":
                    count["ended early"] += 1
                try:
                    value = json.loads(out["text"])
                    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER).validate(value)
                except Exception as e:
                    problem = f"{type(e).__name__}: {str(e)[:300]}"
            if problem:
                count["WRONG"] += 1
                print(f"seed {seed - 1}: {problem}\n  {json.dumps(schema)[:1500]}\n  {str(out.get('text'))[:600]}", flush=True)
        print(f"{time.monotonic() - began:.0f} s")
    for k, v in sorted(count.items()):
        print(f"{v:8d}  {k}")
    return count["WRONG"] > 0


if __name__ == "__main__":
    sys.exit(main())
