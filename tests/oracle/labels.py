"""Golden models with a head of labels, in double precision: tests/golden/labels/NAME.

  config.json, model.safetensors   as save_pretrained of transformers' ForSequenceClassification writes them (fp32)
  golden.safetensors               ids [B,T+1] (of the last column nothing depends), length [B], label [B], logits [B,labels] of
                                   the last token that is no padding, loss [1], grad.NAME for every parameter
The losses are transformers' own, or that of TRL's RewardTrainer: -log sigmoid(chosen - rejected) of rows 2i and 2i + 1, with
`center` times the mean of (chosen + rejected)^2.

Usage: python labels.py [OUT]
"""

import sys
from pathlib import Path

import numpy as np
import safetensors.numpy
import torch
import transformers
from transformers import GPT2Config, LlamaConfig, MixtralConfig, Qwen3Config

from exact import all_double, f32, fill

CENTER = 0.01
SIZES = dict(vocab_size=61, hidden_size=36, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=6,
             intermediate_size=52, max_position_embeddings=40)
MODELS = [
    # name, config, objective, rows, longest row
    ("gpt2-classes", GPT2Config(vocab_size=53, n_embd=24, n_layer=2, n_head=3, n_positions=32, num_labels=3, bos_token_id=1,
                                eos_token_id=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0), "classify", 5, 17),
    ("llama-classes", LlamaConfig(**SIZES, num_labels=2, pad_token_id=7, tie_word_embeddings=True), "classify", 4, 19),
    ("qwen3-number", Qwen3Config(**SIZES, num_labels=1, problem_type="regression", tie_word_embeddings=False), "classify", 3, 13),
    ("mixtral-classes", MixtralConfig(**(SIZES | dict(num_hidden_layers=1, intermediate_size=20)), num_labels=5, num_local_experts=4, num_experts_per_tok=2, pad_token_id=0),
     "classify", 4, 11),
    ("llama-reward", LlamaConfig(**SIZES, num_labels=1, pad_token_id=7), "reward", 6, 15),
]


def model_of(config, dtype=torch.float32):
    config._attn_implementation = config._experts_implementation = "eager"
    return transformers.AutoModelForSequenceClassification._model_mapping[type(config)](config).to(dtype).eval()


def scores_of(model, ids, lengths):
    """Row by row where there is no padding token, else together, as a user would."""
    if model.config.pad_token_id is None:
        return torch.cat([model(input_ids=torch.tensor(r[None, :n]).long()).logits for r, n in zip(ids, lengths)])
    mask = torch.tensor(np.arange(ids.shape[1])[None] < np.array(lengths)[:, None]).long()
    padded = torch.where(mask.bool(), torch.tensor(ids).long(), model.config.pad_token_id)
    return model(input_ids=padded, attention_mask=mask).logits


def loss_of(model, scores, labels, objective):
    if objective == "reward":
        good, bad = scores[0::2, 0], scores[1::2, 0]
        return -torch.nn.functional.logsigmoid(good - bad).mean() + CENTER * ((good + bad) ** 2).mean()
    if model.config.num_labels == 1:
        return torch.nn.functional.mse_loss(scores[:, 0], torch.tensor(labels, dtype=scores.dtype))
    return torch.nn.functional.cross_entropy(scores, torch.tensor(labels).long())


def golden(model, ids, lengths, labels, objective):
    model.zero_grad(set_to_none=True)
    scores = scores_of(model, ids, lengths)
    loss = loss_of(model, scores, labels, objective)
    loss.backward()
    grads = {f"grad.{n}": f32(p.grad if p.grad is not None else torch.zeros_like(p)) for n, p in model.named_parameters()}
    return dict(ids=np.concatenate([ids, ids[:, :1]], axis=1).astype(np.int32), length=np.array(lengths, dtype=np.int32),
                label=np.array(labels, dtype=np.float32), logits=f32(scores), loss=f32(loss.reshape(1)), **grads)


def experts_of_files(tensors):
    """transformers keeps the matrices of all experts as one tensor, and files have one for each."""
    out = {}
    for name, t in tensors.items():
        if not name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
            out[name.replace("mlp.gate.", "block_sparse_moe.gate.")] = t
            continue
        base = name[: name.rindex(".experts.")].replace("mlp", "block_sparse_moe")
        for e, w in enumerate(t):
            half = w.shape[0] // 2
            parts = {"w1": w[:half], "w3": w[half:]} if name.endswith("gate_up_proj") else {"w2": w}
            out |= {f"{base}.experts.{e}.{k}.weight": np.ascontiguousarray(v) for k, v in parts.items()}
    return out


def make(folder, config, objective, rows, longest, seed):
    rng = np.random.default_rng(seed)
    single = model_of(config)
    fill(single, rng)
    single.save_pretrained(folder)
    ids = rng.integers(0, config.vocab_size, (rows, longest))
    lengths = [longest, 1, *rng.integers(2, longest, rows - 2)]
    if config.pad_token_id is not None:
        ids[0, -2:] = config.pad_token_id  # a text that ends in it: the head looks before
        ids[1, 0] = (config.pad_token_id + 1) % config.vocab_size
    labels = rng.normal(size=rows) if config.num_labels == 1 else rng.integers(0, config.num_labels, rows)
    if objective == "reward":
        labels = np.arange(rows) % 2 == 0
    with all_double():
        exact = model_of(config, torch.float64)
        exact.load_state_dict(single.state_dict())
        out = golden(exact, ids, lengths, labels, objective)
    if config.model_type == "mixtral":
        out = {n: t for n, t in out.items() if not n.startswith("grad.")} | experts_of_files(
            {n: t for n, t in out.items() if n.startswith("grad.")})
    safetensors.numpy.save_file(out, folder / "golden.safetensors")
    for path in folder.iterdir():
        path.chmod(0o644)


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "golden" / "labels"
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.disable_progress_bar()
    for i, (name, config, objective, rows, longest) in enumerate(MODELS):
        make(out / name, config, objective, rows, longest, 90 + i)
        print(name, sum(f.stat().st_size for f in (out / name).iterdir()), "bytes")


if __name__ == "__main__":
    main()
