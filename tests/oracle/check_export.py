"""Loads a checkpoint folder with transformers and compares its logits with those athanor computed.

    athanor generate FOLDER --ids 1,2,3 --logits OUT.npy
    python check_export.py FOLDER OUT.npy --ids 1,2,3 [--new 4,5,6] [--text TEXT --text-ids 4,5,6] [--tolerance 1e-4]

OUT.npy holds fp32 [T,V] logits of the ids. transformers runs the fp32 model with eager attention. With --text the
folder's tokenizer is loaded too and must turn TEXT into the ids given. --new: what `athanor generate --temperature 0`
wrote after the ids; transformers must write the same. Exit status 1 if a difference is above the
tolerance (relative to the largest logit) or the ids differ.
"""

import argparse
import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def ids_of(text):
    return [int(x) for x in text.replace(",", " ").split()]


def compare_logits(folder, npy, ids, tolerance):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        want = model(input_ids=torch.tensor([ids])).logits[0].numpy()
    got = np.load(npy)
    if got.shape != want.shape:
        print(f"logits: shape {got.shape}, transformers gives {want.shape}")
        return False
    if not np.isfinite(got).all():
        print("logits: not finite")
        return False
    worst = np.abs(got - want).max()
    relative = worst / np.abs(want).max()
    same_top = (got.argmax(1) == want.argmax(1)).mean()
    print(f"logits {got.shape}: max abs difference {worst:.3g}, relative to the largest logit {relative:.3g}, "
          f"same first choice at {100 * same_top:.1f} % of positions")
    return relative <= tolerance


def compare_new(folder, ids, new):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    out = model.generate(torch.tensor([ids]), max_new_tokens=len(new), do_sample=False, eos_token_id=None)
    want = out[0, len(ids):].tolist()
    same = next((i for i, (a, b) in enumerate(zip(want, new)) if a != b), len(new))
    print(f"generation: {same} of {len(new)} tokens are the same")
    return same == len(new)


def compare_ids(folder, text, ids):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    want = tokenizer(text, add_special_tokens=False)["input_ids"]
    back = tokenizer.decode(want, clean_up_tokenization_spaces=False)
    print(f"tokenizer: {'same' if want == ids else 'DIFFERENT'} ids ({len(want)}), "
          f"decodes to {'the same' if back == text else 'ANOTHER'} text")
    if want != ids:
        first = next((i for i, (a, b) in enumerate(zip(want, ids)) if a != b), min(len(want), len(ids)))
        print(f"  first difference at {first}: transformers {want[first:first + 5]}, given {ids[first:first + 5]}")
    return want == ids


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("logits")
    parser.add_argument("--ids", required=True, type=ids_of)
    parser.add_argument("--new", type=ids_of)
    parser.add_argument("--text")
    parser.add_argument("--text-ids", type=ids_of)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    args = parser.parse_args()
    ok = compare_logits(args.folder, args.logits, args.ids, args.tolerance)
    if args.new:
        ok = compare_new(args.folder, args.ids, args.new) and ok
    if args.text is not None:
        ok = compare_ids(args.folder, args.text, args.text_ids or args.ids) and ok
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
