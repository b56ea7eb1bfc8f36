"""A run that started from weights with a larger tokenizer, beside what transformers does with new tokens.

    check_grown.py BEFORE AFTER     # AFTER: the first checkpoint of a run with optim={lr: 0, weight_decay: 0}

The rows of new tokens are the mean of the others (resize_token_embeddings with mean_resizing, which adds noise of a
covariance times 1e-9), and the logits of old tokens are equal.
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(before, after):
    a = AutoModelForCausalLM.from_pretrained(before, dtype=torch.float32)
    b = AutoModelForCausalLM.from_pretrained(after, dtype=torch.float32)
    t = AutoTokenizer.from_pretrained(after)
    n, m = a.config.vocab_size, b.config.vocab_size
    assert m > n and m >= len(t), f"{n} rows before, {m} after, {len(t)} tokens"
    ids = torch.randint(0, n, (1, 32), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        worst = (a(ids).logits - b(ids).logits[..., :n]).abs().max().item()
    print(f"logits of {n} old tokens differ by at most {worst:g}")
    assert worst <= 1e-5
    a.resize_token_embeddings(m, mean_resizing=True)
    for name, x, y in (("embedding", a.get_input_embeddings(), b.get_input_embeddings()),
                       ("head", a.get_output_embeddings(), b.get_output_embeddings())):
        old = y.weight[:n].double()
        worst = (y.weight[n:].double() - old.mean(0)).abs().max().item()
        noise = (x.weight[n:] - y.weight[n:]).abs().max().item()
        print(f"{name}: {m - n} new rows are the mean to {worst:g}, transformers' to {noise:g}")
        assert worst <= 1e-6 and noise <= 1e-3 * old.std().item()
    print("ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
