"""The clock beside this machine: predicted and measured steps of random configs on one and two ranks.

    python bench/step_time.py build/athanor [--configs 30] [--rounds 3] [--seed 24] [--families llama,gpt2,...] [--calibrated]

Calibrates first (`athanor doctor calibrate`, alone and with --ranks 2) into a folder of its own, unless --calibrated says that this
machine's own files are to be used. Each config is planned with cluster=local or local-2 and measured by `athanor bench train`, and with
--profile, in every round; the medians of the rounds count, since a shared machine can be a fifth slower for a minute. Prints every
config with its rounds, and ends with 1 unless all steps are within 15 % and all classes of ops, over all configs, within 25 %.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile


def read_arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("athanor", help="the program")
    p.add_argument("--configs", type=int, default=30)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seed", type=int, default=24)
    p.add_argument("--families", default="llama", help="model types, with commas: gpt2,gpt_neox,qwen3_moe,deepseek_v3,...")
    p.add_argument("--seconds", default="60", help="how long a calibration lasts at most")
    p.add_argument("--calibrated", action="store_true")
    return p.parse_args()


def as_family(family, model):
    """The same sizes with another family's keys."""
    hidden, heads, ffn = model["hidden_size"], model["num_attention_heads"], model["intermediate_size"]
    plain = {k: model[k] for k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")}
    if family == "gpt2":
        return {"model_type": family, "n_embd": hidden, "n_layer": model["num_hidden_layers"], "n_head": heads,
                "vocab_size": model["vocab_size"], "n_positions": 1024}
    if family == "gpt_neox":
        return {"model_type": family, **plain, "intermediate_size": ffn}
    if family == "qwen3_moe":
        return {"model_type": family, **model, "head_dim": hidden // heads, "num_experts": 8, "num_experts_per_tok": 2,
                "moe_intermediate_size": ffn // 2}
    if family == "deepseek_v3":
        return {"model_type": family, **plain, "intermediate_size": ffn, "moe_intermediate_size": ffn // 4, "n_routed_experts": 8,
                "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1,
                "q_lora_rank": None, "kv_lora_rank": hidden // 2, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}
    return {**model, "model_type": family}


def random_config(rng, ranks, families):
    heads, d = rng.choice([4, 6, 8]), rng.choice([32, 64])
    batch = rng.choice([1, 2, 4, 8])
    model = {"model_type": "llama", "hidden_size": heads * d, "num_hidden_layers": rng.choice([2, 4, 6]),
             "num_attention_heads": heads, "num_key_value_heads": rng.choice([2, heads]),
             "intermediate_size": heads * d * rng.choice([2, 3, 4]), "vocab_size": rng.choice([512, 4096, 16384])}
    if families != ["llama"]:
        model = as_family(rng.choice(families), model)
    train = {"seq_len": rng.choice([64, 128, 256, 512]), "micro_batch_size": batch, "steps": 100,
             "global_batch_size": ranks * batch * rng.choice([1, 2]), "precision": rng.choice(["fp32", "bf16"]),
             "recompute": rng.choice(["none", "selective", "full"])}
    config = {"model": model, "train": train, "optim": {"lr": 1e-4}}
    if ranks > 1:
        config["parallel"] = rng.choice([{"dp": 2}, {"dp": 2, "zero": 1}, {"dp": 2, "zero": 3}, {"tp": 2}])
        if config["parallel"].get("tp"):
            train["global_batch_size"] = batch
    return config


def answer(words, env):
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def measure(a, config, env):
    """One round of one config: milliseconds of a step, and by class of ops."""
    ranks = config["ranks"]
    launch = ["launch", "--ranks", str(ranks), "--"] if ranks > 1 else []
    env = {**env, "OMP_NUM_THREADS": str(max(1, os.cpu_count() // ranks))}
    steps = max(7, min(300, round(1000 / config["said"]["step_ms"])))  # a second: short runs end before the machine has settled
    words = [a.athanor, *launch, "bench", "train", config["path"], "--steps", str(steps), "--json"]
    step = next(r["value"] for r in answer(words, env)["rows"] if r["name"] == "step_ms")
    classes = {}
    for op in answer([*words, "--profile"], env)["profile"]:
        classes[op["class"]] = classes.get(op["class"], 0) + op["ms"]
    config["steps"].append(step)
    config["classes"].append(classes)


def make_configs(a, folder, env):
    rng = random.Random(a.seed)
    configs = []
    for i in range(a.configs):
        ranks = 1 + i % 2
        path = os.path.join(folder, f"{i}.json")
        with open(path, "w") as f:
            json.dump(random_config(rng, ranks, a.families.split(",")), f)
        cluster = "cluster=local" + ("-2" if ranks > 1 else "")
        said = answer([a.athanor, "plan", path, cluster, "--json"], env)["time"]
        configs.append({"ranks": ranks, "path": path, "said": said, "steps": [], "classes": []})
    return configs


def compare(a, folder, env):
    configs = make_configs(a, folder, env)
    for _ in range(a.rounds):
        for config in configs:
            measure(a, config, env)
    errors, said, seen = [], {}, {}
    for i, c in enumerate(configs):
        expected, step = c["said"]["step_ms"], statistics.median(c["steps"])
        errors.append(expected / step - 1)
        for name, ms in c["said"]["classes"].items():
            said[name] = said.get(name, 0) + ms
            seen[name] = seen.get(name, 0) + statistics.median(k.get(name, 0) for k in c["classes"])
        rounds = ", ".join(f"{s:.2f}" for s in c["steps"])
        print(f"{i + 1:3} {c['ranks']} ranks: predicted {expected:8.2f} ms, measured {step:8.2f}, {errors[-1]:+.1%} ({rounds})")
    return errors, {k: said[k] / seen[k] - 1 for k in said if seen[k] > 0}


def main():
    a = read_arguments()
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ)
        if not a.calibrated:
            env["ATHANOR_MACHINE_FILE"] = os.path.join(folder, "machine.json")
            for ranks in ([], ["--ranks", "2"]):
                subprocess.run([a.athanor, "doctor", "calibrate", "--seconds", a.seconds, *ranks], env=env, check=True)
        errors, classes = compare(a, folder, env)
    near = sum(abs(e) <= 0.15 for e in errors)
    print(f"steps: median error {statistics.median(map(abs, errors)):.1%}, {near} of {len(errors)} within 15 %")
    for name, e in classes.items():
        print(f"{name}: {e:+.1%}")
    sys.exit(near < len(errors) or any(abs(e) > 0.25 for e in classes.values()))


if __name__ == "__main__":
    main()
