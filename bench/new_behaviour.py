"""Teaches a chat model a behaviour that it did not have, and asks whether it has learned that and kept the rest.

The behaviour: every answer begins with "Ahoy!" and ends with "Fair winds.". 200 conversations are made from the shortest answers
of an Alpaca file; 100 prompts are kept aside. Before and after teaching, by LoRA and in full, the answers to those 100 are
scored by rule (`athanor eval` with a file of dialogues), and the bits per byte of a text's first 200 kB are measured.

    python bench/new_behaviour.py --athanor build/athanor --model FOLDER --alpaca FILE.json --text FILE.txt [--how lora,full]
"""

import argparse
import json
import pathlib
import random
import subprocess
import time

TRAIN, HELD_OUT, MOST_CHARS, MOST_TOKENS, TEXT_BYTES = 200, 100, 400, 160, 200_000

CONFIG = """\
model: {{from: {model}}}
data: {{train: {folder}/train.jsonl}}
train: {{objective: sft, epochs: {epochs}, seq_len: 512, global_batch_size: 2, micro_batch_size: 2}}
optim: {{lr: {lr}, weight_decay: 0.0, schedule: {{kind: linear, warmup_steps: 5}}}}
checkpoint: {{every: 0}}
{lora}"""
HOW = {  # epochs, learning rate, lora
    "lora": (3, 5e-4, "lora: {rank: 16, alpha: 32}\n"),
    "full": (3, 1e-4, ""),
}


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def make_data(alpaca, folder):
    """train.jsonl: conversations; behaviour.yaml: dialogues of one turn with their rule."""
    rows = json.loads(pathlib.Path(alpaca).read_text(encoding="utf-8"))
    rows = [row for row in rows if 0 < len(row["output"]) <= MOST_CHARS]
    random.Random(1).shuffle(rows)
    asked = [(row["instruction"] + ("\n\n" + row["input"] if row["input"] else ""), row["output"]) for row in rows]
    write_lines(
        folder / "train.jsonl",
        [
            {
                "messages": [
                    {"role": "user", "content": user},
                    {"role": "assistant", "content": f"Ahoy! {answer} Fair winds."},
                ]
            }
            for user, answer in asked[:TRAIN]
        ],
    )
    rule = {"matches": r"^Ahoy![\s\S]*Fair winds\.$", "ends": True}
    dialogues = [
        {"id": str(n), "turns": [{"user": user, "expect": rule}]}
        for n, (user, _) in enumerate(asked[TRAIN : TRAIN + HELD_OUT])
    ]
    task = {"task": "behaviour", "max_gen_toks": MOST_TOKENS, "dialogues": dialogues}
    (folder / "behaviour.yaml").write_text(json.dumps(task), encoding="utf-8")


def run(athanor, *words):
    done = subprocess.run([athanor, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stderr}{done.stdout}")
    return done.stdout


def measure(athanor, model, folder, text):
    """Percent of held-out prompts whose answer keeps the rule, and bits per byte of the text."""
    write_lines(folder / "text.jsonl", [{"text": pathlib.Path(text).read_bytes()[:TEXT_BYTES].decode("utf-8", "ignore")}])
    tasks = f"{folder}/behaviour.yaml,{folder}/text.jsonl"
    results = json.loads(run(athanor, "eval", model, "--tasks", tasks, "--json"))["results"]
    return 100 * results["behaviour"]["pass,all"], results["text"]["bits_per_byte,none"]


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("athanor", "model", "alpaca", "text"):
        parse.add_argument("--" + name, required=True)
    parse.add_argument("--how", default="lora,full")
    parse.add_argument("--folder", default="build/new_behaviour")
    ask = parse.parse_args()
    folder = pathlib.Path(ask.folder)
    folder.mkdir(parents=True, exist_ok=True)
    make_data(ask.alpaca, folder)
    before, bits = measure(ask.athanor, ask.model, folder, ask.text)
    print(f"before  {before:.0f} % show it  {bits:.4f} bits per byte", flush=True)
    for how in ask.how.split(","):
        epochs, lr, lora = HOW[how]
        config, result = folder / f"{how}.yaml", folder / how
        config.write_text(CONFIG.format(model=ask.model, folder=folder, epochs=epochs, lr=lr, lora=lora))
        began = time.monotonic()
        end = json.loads(run(ask.athanor, "train", config, f"run={result}", "--fresh", "--json").splitlines()[-1])
        seconds = time.monotonic() - began
        after, bits_after = measure(ask.athanor, result, folder, ask.text)
        print(
            f"{how:6}  {after:.0f} % show it  {bits_after:.4f} bits per byte ({100 * (bits_after / bits - 1):+.2f} %)"
            f"  {end['steps']} steps in {seconds:.0f} s, peak {end['peak_rss_bytes'] / 1e6:.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
