"""A trained model with an encoder, in transformers: export, logits, greedy answers and beams.

    python check_encoder.py ATHANOR RUN TEXTS [--beams 4] [--new 64]

RUN is the folder of a run (recipes/t5-small.yaml); TEXTS a file with a source on each line. The run's last checkpoint is exported in
fp32 and read with AutoModelForSeq2SeqLM and AutoTokenizer. Then, for each line: the tokenizers give the same ids, the logits differ
by at most 1e-5 of the largest, greedy answers are the same ids, and so are the best texts of the beam search, with their scores to
1e-4. Exit status 1 if anything differs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import encoders
from exact import relative_difference


def run(program, *args):
    return subprocess.run([program, *map(str, args)], check=True, capture_output=True, text=True).stdout


def differences(program, folder, model, ids, new, beams):
    """What differs for one source; and how far the logits are apart."""
    words = ",".join(map(str, ids))
    out = folder / "logits.npy"
    run(program, "generate", folder, "--ids", words, "--logits", out, "--json")
    source = torch.tensor([ids])
    away = relative_difference(np.load(out), encoders.logits_of(model, source, source)[0].numpy())
    greedy = model.generate(source, do_sample=False, max_new_tokens=new)[0, 1:].tolist()
    said = json.loads(run(program, "generate", folder, "--ids", words, "--temperature", 0, "--max-new", new, "--json"))
    wrong = [] if away <= 1e-5 else [f"logits {away:.1e} apart"]
    if said["ids"] != without_end(model, greedy):
        wrong.append(f"greedy {said['ids']} instead of {greedy}")
    texts, scores = encoders.beams(model, ids, dict(num_beams=beams, max_new_tokens=new))
    got = json.loads(run(program, "generate", folder, "--ids", words, "--beams", beams, "--max-new", new, "--json"))["beams"]
    for g, text, score in zip(got, texts, scores):
        if g["ids"] != without_end(model, text) or abs(g["score"] - score) > 1e-4:
            wrong.append(f"beam {g['ids']} of {g['score']} instead of {text} of {score}")
    return wrong, away


def without_end(model, ids):
    end = model.generation_config.eos_token_id
    return ids[:ids.index(end)] if end in ids else ids


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("run")
    parser.add_argument("texts", type=Path)
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--new", type=int, default=64)
    args = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as temporary, torch.no_grad():
        folder = Path(temporary) / "hf"
        run(args.program, "export", args.run, "-o", folder, "--to", "hf", "--dtype", "F32")
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        model.generation_config.use_cache = False  # its caches have as many layers as the encoder
        tokenizer = AutoTokenizer.from_pretrained(folder)
        for line in filter(None, args.texts.read_text().splitlines()):
            ids = tokenizer(line)["input_ids"]
            mine = json.loads(run(args.program, "generate", folder, "--prompt", line, "--max-new", 1, "--json"))["prompt_ids"]
            wrong, away = differences(args.program, folder, model, ids, args.new, args.beams)
            if mine != ids:
                wrong.append(f"ids {mine} instead of {ids}")
            failed += bool(wrong)
            print(f"{line[:60]!r}: {'; '.join(wrong) or f'same, logits {away:.0e} apart'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
