"""Makes tests/golden/train/objectives: what TRL's trainers compute of the objectives of src/train/objective.

Two files. losses.json: for random log-probabilities of sequences, the loss of a batch and its gradient by each
log-probability, by the trainers' own loss functions. steps.json: three steps of each trainer on the model
MODEL (a tiny Llama, fp32, AdamW without weight decay, constant rate): the loss and gradient norm of each step, and a
summary of all weights after the last (sum, sum of squares, the first four). ids.npy and masks.npy [steps, rows, T+1] are the data; two rows are a sample.

TRL's ORPO counts the tokens of prompts in its likelihood, and takes means over the tokens of a micro-batch; so its
prompts have one token here, and its micro-batches one pair. TRL's label smoothing of plain DPO is the loss `aot` where
a micro-batch has one pair.

Usage: python objectives.py [OUT]       (default: ../golden/train/objectives)
"""

import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from tokenizers import Tokenizer, models
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
MODEL = GOLDEN / "models" / "llama-gqa-tied"
REFERENCE = GOLDEN / "train" / "two_models" / "reference"
STEPS, PAIRS, T = 3, 4, 24
OPTIONS = dict(beta=0.3, lr=4e-3, betas=[0.9, 0.95], eps=1e-8, clip_norm=4.0, label_smoothing=0.2,
               desirable_weight=1.5, undesirable_weight=0.8, **{"lambda": 0.4})


# Data: as in two_models.py, but the second sequence of a KTO sample has the next sample's answer.

def tail(start, n, multiplier, addend, vocab):
    ids = [start]
    for _ in range(n):
        ids.append((multiplier * ids[-1] + addend) % vocab)
    return ids[1:]


def make_pairs(vocab):
    """[steps][pairs] of prompt, chosen and rejected ids."""
    steps = []
    for step in range(STEPS):
        pairs = []
        for i in range(PAIRS):
            n = step * PAIRS + i
            start = (17 * n * n + 29 * n + 11) % vocab
            prompt = [start] + tail(start, 3 + n % 5, 5, 7, vocab)
            room = T + 1 - len(prompt)
            pairs.append((prompt, tail(prompt[-1], room - n % 4, 3, 1, vocab),
                          tail(prompt[-1], room - 5 - n % 3, 11, 4, vocab)))
        steps.append(pairs)
    return steps


def rows_of(steps, second):
    """ids and masks [steps, rows, T+1]; second(pairs, i) is the second row of a sample: prompt and answer."""
    ids = np.zeros((STEPS, 2 * PAIRS, T + 1), np.int32)
    masks = np.zeros_like(ids)
    for s, pairs in enumerate(steps):
        for i, (prompt, chosen, _) in enumerate(pairs):
            for row, (p, a) in enumerate([(prompt, chosen), second(pairs, i)]):
                whole = (p + a)[:T + 1]
                ids[s, 2 * i + row, :len(whole)] = whole
                masks[s, 2 * i + row, len(p):len(whole)] = 1
    return ids, masks


def shorten(steps):
    return [[(prompt[-1:], a, b) for prompt, a, b in pairs] for pairs in steps]


# Trainers, whose data are ids already

def tokenizer(vocab):
    words = {f"<{i}>": i for i in range(vocab)}
    t = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<0>")))
    t.pad_token = t.eos_token = "<0>"
    return t


def as_is(cls):
    class AsIs(cls):
        def _prepare_dataset(self, dataset, *args, **kwargs):
            return dataset
    return AsIs


def orpo_of_ids(cls):
    """The data are prepared in __init__, which tokenizes them: it gets texts, and the ids take their place."""
    class OfIds(cls):
        def tokenize_row(self, feature, model=None):
            ids = {k: feature["ids"][k] for k in ("prompt", "chosen", "rejected")}
            out = {}
            for side in ("chosen", "rejected"):
                whole = ids["prompt"] + ids[side]
                out[f"{side}_input_ids"] = whole
                out[f"{side}_attention_mask"] = [1] * len(whole)
                out[f"{side}_labels"] = [-100] * len(ids["prompt"]) + ids[side]
            out["prompt_input_ids"] = ids["prompt"]
            out["prompt_attention_mask"] = [1] * len(ids["prompt"])
            return out
    return OfIds


def common_args(folder, per_device, **more):
    return dict(output_dir=folder, per_device_train_batch_size=per_device,
                gradient_accumulation_steps=PAIRS // per_device, max_steps=STEPS, learning_rate=OPTIONS["lr"],
                lr_scheduler_type="constant", adam_beta1=OPTIONS["betas"][0], adam_beta2=OPTIONS["betas"][1],
                adam_epsilon=OPTIONS["eps"], weight_decay=0.0, max_grad_norm=OPTIONS["clip_norm"], logging_steps=1,
                report_to=[], save_strategy="no", use_cpu=True, bf16=False, fp16=False, gradient_checkpointing=False,
                disable_tqdm=True, seed=0, **more)


def model():
    return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager")


def reference():
    return AutoModelForCausalLM.from_pretrained(REFERENCE, dtype=torch.float32, attn_implementation="eager")


def in_order(trainer):
    trainer._get_train_sampler = lambda *a, **k: torch.utils.data.SequentialSampler(trainer.train_dataset)
    return trainer


def dpo_trainer(folder, steps, loss_type, per_device=PAIRS):
    rows = [dict(prompt_ids=p, chosen_ids=c, rejected_ids=r) for pairs in steps for p, c, r in pairs]
    args = DPOConfig(**common_args(folder, per_device), beta=OPTIONS["beta"], loss_type=[loss_type],
                     label_smoothing=OPTIONS["label_smoothing"] if loss_type == "aot" else 0.0, max_length=None)
    t = tokenizer(model().config.vocab_size)
    return in_order(as_is(DPOTrainer)(model=model(), ref_model=reference(), args=args, processing_class=t,
                                      train_dataset=Dataset.from_list(rows)))


def kto_trainer(folder, steps):
    rows = []
    for pairs in steps:
        for i, (p, c, _) in enumerate(pairs):
            rows.append(dict(prompt_ids=p, completion_ids=c, KL_completion_ids=pairs[(i + 1) % PAIRS][1],
                             label=i % 3 != 1))
    args = KTOConfig(**common_args(folder, PAIRS), beta=OPTIONS["beta"], desirable_weight=OPTIONS["desirable_weight"],
                     undesirable_weight=OPTIONS["undesirable_weight"], max_length=T + 1,
                     train_sampling_strategy="sequential")
    t = tokenizer(model().config.vocab_size)
    return as_is(KTOTrainer)(model=model(), ref_model=reference(), args=args, processing_class=t,
                             train_dataset=Dataset.from_list(rows))


def orpo_trainer(folder, steps):
    rows = [dict(prompt="a", chosen="b", rejected="c", ids=dict(prompt=p, chosen=c, rejected=r))
            for pairs in steps for p, c, r in pairs]
    args = ORPOConfig(**common_args(folder, 1), beta=OPTIONS["lambda"], max_length=T + 1, disable_dropout=True)
    t = tokenizer(model().config.vocab_size)
    return in_order(orpo_of_ids(ORPOTrainer)(model=model(), args=args, processing_class=t,
                                             train_dataset=Dataset.from_list(rows)))


def sft_trainer(folder, steps):
    rows = []
    for pairs in steps:
        for p, c, r in pairs:
            for a in (c, r):
                rows.append(dict(input_ids=p + a, labels=[-100] * len(p) + a))
    args = SFTConfig(**common_args(folder, PAIRS) | dict(per_device_train_batch_size=2 * PAIRS,
                                                         gradient_accumulation_steps=1),
                     max_length=None, packing=False, dataset_kwargs=dict(skip_prepare_dataset=True))
    t = tokenizer(model().config.vocab_size)
    return in_order(SFTTrainer(model=model(), args=args, processing_class=t, train_dataset=Dataset.from_list(rows)))


def summary(m):
    out = {}
    for name, p in m.named_parameters():
        x = p.detach().double().numpy().reshape(-1)
        out[name] = [float(f"{v:.9g}") for v in (x.sum(), (x * x).sum(), *x[:4])]
    return out


def train(make, steps, *more):
    with tempfile.TemporaryDirectory() as folder:
        trainer = make(folder, steps, *more)
        trainer.train()
        logs = [entry for entry in trainer.state.log_history if "loss" in entry]
        assert len(logs) == STEPS
        keys = dict(loss="loss", grad_norm="grad_norm", reward_chosen="rewards/chosen",
                    reward_rejected="rewards/rejected", accuracy="rewards/accuracies", logp_chosen="logps/chosen",
                    kl="kl")
        course = {ours: [float(entry[theirs]) for entry in logs] for ours, theirs in keys.items() if theirs in logs[0]}
        return course | dict(params=summary(trainer.model))


# Losses by log-probabilities

class Given(torch.nn.Module):
    """A model that says given log-probabilities [rows, targets]."""

    def __init__(self, logps):
        super().__init__()
        self.logps = torch.nn.Parameter(logps)

    def forward(self, input_ids=None, **kwargs):
        zero = torch.zeros_like(self.logps)
        return SimpleNamespace(log_probs=self.logps, entropy=zero, mean_logits=zero, is_top1=zero.bool(),
                               log_sum_sq_probs=zero, aux_loss=None)


def given_dpo(trainer, policy, ref, lengths):
    """policy, ref [2 n]: chosen ones, then rejected ones. Each is spread evenly over its targets."""
    width = max(lengths)
    mask = torch.tensor([[0] + [1] * n + [0] * (width - n) for n in lengths])
    spread = torch.stack([p / n * mask[i, 1:] for i, (p, n) in enumerate(zip(policy, lengths))])
    given = Given(spread)
    trainer.precompute_ref_logps = True
    half = len(lengths) // 2
    inputs = dict(input_ids=mask * 0, attention_mask=mask * 0 + 1, completion_mask=mask, ref_chosen_logps=ref[:half],
                  ref_rejected_logps=ref[half:])
    loss = trainer._compute_loss(given, inputs, False)
    loss.backward()
    return float(loss), [float(g[0]) for g in given.logps.grad]  # all targets of a row have the same


def given_orpo(trainer, policy, lengths):
    mean = torch.nn.Parameter(policy / torch.tensor(lengths, dtype=torch.float64))
    half = len(lengths) // 2
    trainer_float = torch.Tensor.float
    torch.Tensor.float = lambda self, *a, **k: self  # in double
    try:
        losses = trainer.odds_ratio_loss(mean[:half], mean[half:])[0]
    finally:
        torch.Tensor.float = trainer_float
    loss = -mean[:half].mean() - losses.mean()
    loss.backward()
    return float(loss), [float(g / n) for g, n in zip(mean.grad, lengths)]


def given_losses():
    rng = np.random.default_rng(7)
    n = 6
    lengths = [int(x) for x in rng.integers(3, 30, 2 * n)]
    policy = -torch.tensor(rng.uniform(0.2, 3, 2 * n) * lengths, dtype=torch.float64)
    ref = policy + torch.tensor(rng.normal(0, 4, 2 * n), dtype=torch.float64)
    out = dict(lengths=lengths, logp=policy.tolist(), ref_logp=ref.tolist(), options=OPTIONS, objectives={})
    steps = make_pairs(89)
    for name, loss_type in (("dpo", "sigmoid"), ("ipo", "ipo"), ("apo-zero", "apo_zero"), ("apo-down", "apo_down")):
        with tempfile.TemporaryDirectory() as folder:
            trainer = dpo_trainer(folder, steps, loss_type)
            loss, d = given_dpo(trainer, policy, ref, lengths)
        out["objectives"][name] = dict(loss=loss, d_logp=d)
    with tempfile.TemporaryDirectory() as folder:
        trainer = dpo_trainer(folder, steps, "aot", 1)
        each = [given_dpo(trainer, policy[[i, n + i]], ref[[i, n + i]], [lengths[i], lengths[n + i]])
                for i in range(n)]
    d = [e[1][0] / n for e in each] + [e[1][1] / n for e in each]
    out["objectives"]["dpo smoothed"] = dict(loss=float(np.mean([e[0] for e in each])), d_logp=d)
    with tempfile.TemporaryDirectory() as folder:
        loss, d = given_orpo(orpo_trainer(folder, shorten(steps)), policy, lengths)
    out["objectives"]["orpo"] = dict(loss=loss, d_logp=d)
    out["objectives"]["kto"] = given_kto(steps, policy, ref, lengths)
    return out


def given_kto(steps, policy, ref, lengths):
    """The first half are samples, of which every third one is undesirable; the second half say the divergence."""
    n = len(lengths) // 2
    width = max(lengths)
    mask = torch.tensor([[0] + [1] * k + [0] * (width - k) for k in lengths])
    spread = torch.stack([p / k * mask[i, 1:] for i, (p, k) in enumerate(zip(policy, lengths))])
    given = Given(spread[:n])
    with tempfile.TemporaryDirectory() as folder:
        trainer = kto_trainer(folder, steps)
        trainer.precompute_ref_logps = True
        trainer._compute_kl_logps = lambda model, batch: policy[n:]
        zero = mask[:n] * 0
        batch = dict(input_ids=zero, attention_mask=zero + 1, completion_mask=mask[:n], ref_logps=ref[:n],
                     ref_KL_logps=ref[n:], label=torch.tensor([i % 3 != 1 for i in range(n)]))
        loss = trainer._compute_loss(given, batch, False)
        loss.backward()
    return dict(loss=float(loss), d_logp=[float(g[0]) for g in given.logps.grad],
                kl=float((policy[n:] - ref[n:]).mean().clamp(min=0)))


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN / "train" / "objectives"
    out.mkdir(parents=True, exist_ok=True)
    vocab = model().config.vocab_size
    steps = make_pairs(vocab)
    (out / "losses.json").write_text(json.dumps(given_losses(), indent=1) + "\n")
    ids, masks = rows_of(steps, lambda pairs, i: (pairs[i][0], pairs[i][2]))
    kto_ids, kto_masks = rows_of(steps, lambda pairs, i: (pairs[i][0], pairs[(i + 1) % PAIRS][1]))
    np.save(out / "ids.npy", np.stack([ids, kto_ids]).reshape(-1, T + 1))
    np.save(out / "masks.npy", np.stack([masks, kto_masks]).reshape(-1, T + 1))
    short = shorten(steps)
    runs = {
        "sft": train(sft_trainer, steps),
        "dpo": train(dpo_trainer, steps, "sigmoid"),
        "dpo smoothed": train(dpo_trainer, steps, "aot", 1),
        "ipo": train(dpo_trainer, steps, "ipo"),
        "apo-zero": train(dpo_trainer, steps, "apo_zero"),
        "apo-down": train(dpo_trainer, steps, "apo_down"),
        "kto": train(kto_trainer, steps),
        "orpo": train(orpo_trainer, short),
    }
    made_by = {m: __import__(m).__version__ for m in ("trl", "transformers", "torch")}
    (out / "steps.json").write_text(json.dumps(dict(made_by=made_by, model=MODEL.name, steps=STEPS, rows=2 * PAIRS, T=T,
                                                    options=OPTIONS, objectives=runs), indent=1) + "\n")
    for name, run in runs.items():
        print(name, [round(x, 6) for x in run["loss"]], [round(x, 5) for x in run["grad_norm"]])


if __name__ == "__main__":
    main()
