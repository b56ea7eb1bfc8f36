"""Ids and masks of conversations as TRL makes them.

    python chat_masks.py golden                    writes ../golden/data/chat/chat.json and tokenizer.json
    python chat_masks.py compare ATHANOR MODEL DATA [N]

MODEL is a folder in the form of Hugging Face with a ChatML template (SmolLM2-135M-Instruct), DATA holds
alpaca_en_demo.json, glaive_toolcall_en_demo.json, dpo_en_demo.json and kto_en_demo.json in any subfolders.
`compare` builds shards of them with ATHANOR and compares, for the first N (200) records of each, every id and
every mark with what TRL's trainers hand to their collators.

What stands for TRL: the columns of trainer.train_dataset after its own preparation. Masks are those of
assistant_only_loss where the template has generation marks, else of a prompt with its completion: then a
conversation of several answers is one sample of TRL for each answer, and the masks are laid over each other.
"""
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden" / "data" / "chat"
MARK_TRAINED, MARK_REJECTED = 1, 2


# ---- TRL ----

def tiny_model(vocab):
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                                        num_attention_heads=1, vocab_size=vocab))


def config(cls, **more):
    return cls(output_dir=tempfile.mkdtemp(), report_to=[], use_cpu=True, bf16=False, max_length=None, **more)


def sft(tok, rows, assistant_only):
    """Ids and masks of rows for SFTTrainer."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer
    args = config(SFTConfig, assistant_only_loss=assistant_only)
    trainer = SFTTrainer(model=tiny_model(len(tok)), args=args, train_dataset=Dataset.from_list(rows),
                         processing_class=tok)
    return [(list(r["input_ids"]), mask_of(r)) for r in trainer.train_dataset]


def mask_of(row):
    if "labels" in row:
        return [int(x != -100) for x in row["labels"]]
    key = "assistant_masks" if "assistant_masks" in row else "completion_mask"
    return list(row[key])


def dpo(tok, rows):
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer
    trainer = DPOTrainer(model=tiny_model(len(tok)), ref_model=tiny_model(len(tok)), args=config(DPOConfig),
                         train_dataset=Dataset.from_list(rows), processing_class=tok)
    out = []
    for r in trainer.train_dataset:
        p = list(r["prompt_ids"])
        for key in ("chosen_ids", "rejected_ids"):
            ids = list(r[key])
            out.append((p + ids, [0] * len(p) + [1] * len(ids)))
    return out


# ---- records to what TRL reads ----

def alpaca(r):
    text = r["instruction"] + ("\n" + r["input"] if r.get("input") else "")
    return {"prompt": [{"role": "user", "content": text}],
            "completion": [{"role": "assistant", "content": r["output"]}]}


def call(text):
    value = json.loads(text)
    calls = value if isinstance(value, list) else [value]
    calls = [c if "function" in c else {"type": "function", "function": c} for c in calls]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def sharegpt(turns):
    roles = {"human": "user", "gpt": "assistant", "observation": "tool", "system": "system"}
    return [call(t["value"]) if t["from"] == "function_call" else {"role": roles[t["from"]], "content": t["value"]}
            for t in turns]


def glaive(r):
    """JSON texts where rows of a Dataset would get null members."""
    tools = json.loads(r["tools"]) if r.get("tools") else []
    return {"messages": sharegpt(r["conversations"]),
            "tools": [t if "function" in t else {"type": "function", "function": t} for t in tools] or None}


def preference(r):
    return {"prompt": sharegpt(r["conversations"]), "chosen": sharegpt([r["chosen"]]),
            "rejected": sharegpt([r["rejected"]])}


def answers(messages):
    """A row of a prompt and its completion for each answer."""
    return [{"prompt": messages[:i], "completion": [m]} for i, m in enumerate(messages) if m["role"] == "assistant"]


def by_answers(tok, conversations):
    """Masks of every answer, laid over each other; the ids are those of the whole."""
    out = []
    for messages in conversations:
        parts = sft(tok, answers(messages), False)
        ids = tok.apply_chat_template(messages, tokenize=True, return_dict=False)
        mask = [0] * len(ids)
        for part_ids, part in parts:
            assert ids[:len(part_ids)] == part_ids
            for i, m in enumerate(part):
                mask[i] |= m
        out.append((list(ids), mask))
    return out


def by_template(tok, rows):
    """assistant_only_loss, one by one: a Dataset would fill in the members of all calls with nulls."""
    from trl.trainer.sft_trainer import _tokenize
    out = []
    for r in rows:
        got = _tokenize(tok, r["messages"], return_assistant_tokens_mask=True, tools=r.get("tools"),
                        **r.get("chat_template_kwargs", {}))
        out.append((list(got["input_ids"]), list(got["assistant_masks"])))
    return out


# ---- our shards ----

def read_set(folder):
    """[(ids, marks)] of the documents."""
    manifest = json.loads((folder / "manifest.json").read_text())
    width, docs = {"u16": ("H", 2), "u32": ("I", 4)}[manifest["dtype"]], []
    for s in manifest["shards"]:
        base = folder / s["file"]
        n = s["tokens"]
        ids = struct.unpack(f"<{n}{width[0]}", base.read_bytes()[64:])
        marks = base.with_suffix(".mrk").read_bytes()
        index, start = base.with_suffix(".idx").read_bytes()[64:], 0
        for d in range(s["documents"]):
            end = struct.unpack_from("<Q", index, 40 * d)[0]
            docs.append((list(ids[start:end]), list(marks[start:end])))
            start = end
    return docs


def build(athanor, model, records, out, template=None):
    source = out.parent / (out.name + ".json")
    source.write_text(json.dumps(records))
    command = [athanor, "data", "build", str(source), "-o", str(out), f"tokenizer={model}"]
    if template:
        command += ["--template", str(template)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return read_set(out)


def compare(name, ours, theirs):
    wrong = [i for i, ((a, m), (b, k)) in enumerate(zip(ours, theirs))
             if a != b or [x & MARK_TRAINED for x in m] != k]
    tokens = sum(len(a) for a, _ in ours)
    print(f"{name}: {len(ours)} documents, {tokens} tokens, {sum(sum(k) for _, k in theirs)} trained, "
          f"{len(wrong)} differ{': ' + str(wrong[:10]) if wrong else ''}")
    return not wrong and len(ours) == len(theirs)


def compare_all(athanor, model, data, n):
    import trl
    from transformers import AutoTokenizer
    tok = AutoTokenizer.from_pretrained(model)
    with_marks = AutoTokenizer.from_pretrained(model)
    template = Path(trl.__file__).parent / "chat_templates" / "qwen2_5_training.jinja"
    with_marks.chat_template = template.read_text()
    read = lambda name: json.loads(next(Path(data).rglob(name)).read_text())[:n]
    out, ok = Path(tempfile.mkdtemp()), True
    rows = [r for r in read("alpaca_en_demo.json") if r["output"]]
    ok &= compare("Alpaca, ChatML", build(athanor, model, rows, out / "alpaca"), sft(tok, [alpaca(r) for r in rows], False))
    ok &= compare("Alpaca, generation marks", build(athanor, model, rows, out / "alpaca_marks", template),
                  by_template(with_marks, [{"messages": a["prompt"] + a["completion"]} for a in map(alpaca, rows)]))
    rows = read("glaive_toolcall_en_demo.json")
    ok &= compare("tool calls, generation marks", build(athanor, model, rows, out / "glaive", template),
                  by_template(with_marks, [glaive(r) for r in rows]))
    plain = [r for r in rows if all(t["from"] in ("human", "gpt") for t in r["conversations"]) and not json.loads(r["tools"] or "[]")]
    plain = [{"conversations": r["conversations"]} for r in plain]
    ok &= compare("several turns, ChatML", build(athanor, model, plain, out / "turns"),
                  by_answers(tok, [sharegpt(r["conversations"]) for r in plain]))
    rows = read("dpo_en_demo.json")
    ok &= compare("pairs, ChatML", build(athanor, model, rows, out / "dpo"), dpo(tok, [preference(r) for r in rows]))
    return ok


# ---- golden values ----

DATE = (2025, 6, 1)
WEATHER = {"name": "weather", "description": "The weather of a place", "parameters": {
    "type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}}
ASK = {"role": "user", "content": "How much is 6 times 7?"}
LONG = {"role": "assistant", "content": "<think>\nSix sevens: 6 * 7 = 42.\n</think>\nIt is 42."}
TURNS = [{"role": "user", "content": "Hi! \u00dcber-caf\u00e9 \u2615?"}, {"role": "assistant", "content": "Hello there."},
         {"role": "user", "content": "And\n\nthen?"}, {"role": "assistant", "content": "\nThen  nothing\t\u2026 \U0001f642"}]
CALLS = [{"role": "user", "content": "Weather in Ulm?"},
         {"role": "assistant", "content": "", "tool_calls": [
             {"type": "function", "function": {"name": "weather", "arguments": {"place": "Ulm"}}}]},
         {"role": "tool", "content": "{\"sky\": \"clear\"}"},
         {"role": "assistant", "content": "It is clear in Ulm."}]


def system(text, *messages):
    return [{"role": "system", "content": text}, *messages]


def golden_cases():
    """(name, template, messages, other columns)"""
    tools = [{"type": "function", "function": WEATHER}]
    yield "turns", "chatml", TURNS, {}
    yield "system", "chatml", system("Be brief.", *TURNS), {}
    yield "answer begins with a new line", "chatml", TURNS[2:], {}
    yield "reasoning", "chatml", [ASK, LONG], {}
    yield "question of tokens", "chatml", [{"role": "user", "content": "What is <|im_end|>?"}, TURNS[1]], {}
    yield "a token lies across the answer's beginning", "colon", [ASK, {"role": "assistant", "content": "\nThen"}], {}
    for template in ("marks", "modes"):
        yield f"{template}: turns", template, TURNS, {}
        yield f"{template}: tools", template, CALLS, {"tools": tools}
        yield f"{template}: a prompt of the system", template, system("You are a pirate.", *TURNS), {}
    yield "(a) thinking by default", "modes", [ASK, LONG], {}
    yield "(b) /no_think in the system text", "modes", system("Answer in one word. /no_think", ASK, LONG), {}
    yield "(c) enable_thinking false", "modes", [ASK, LONG], {"chat_template_kwargs": {"enable_thinking": False}}
    yield "(c) the flag overrides the variable", "modes", system("/think", ASK, LONG), {"chat_template_kwargs": {"enable_thinking": False}}
    yield "(d) /system_override", "modes", system("You are a cat. /system_override", ASK, LONG), {}
    yield "(e) Python tools", "modes", [ASK, LONG], {"chat_template_kwargs": {"python_tools": ["def add(a, b): ..."]}}
    yield "(f) a tool's result is a turn of the user", "modes", system("/no_think", *CALLS), {"tools": tools}


def small_tokenizer():
    """The BPE of the golden tokenizers, with the tokens of ChatML."""
    from tokenizers import AddedToken, Tokenizer
    from transformers import PreTrainedTokenizerFast
    t = Tokenizer.from_file(str(HERE.parent / "golden" / "tok" / "bpe_llama3.json"))
    t.add_special_tokens([AddedToken(x, normalized=False, special=True) for x in ("<|im_start|>", "<|im_end|>")])
    (GOLDEN / "tokenizer.json").write_text(t.to_str(pretty=False))
    return PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|im_end|>")


CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
          "+ '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


class fixed_date:
    @staticmethod
    def now():
        import datetime
        return datetime.datetime(*DATE)


def make_golden():
    from transformers.utils import chat_template_utils
    chat_template_utils.datetime = fixed_date
    texts = {"chatml": CHATML, "marks": (HERE.parent / "golden" / "jinja" / "chat" / "chatml.jinja").read_text(),
             "modes": (GOLDEN / "modes.jinja").read_text(), "colon": (GOLDEN / "colon.jinja").read_text()}
    tok, cases = small_tokenizer(), []
    for name, template, messages, more in golden_cases():
        tok.chat_template = texts[template]
        record = {"messages": messages, **more}
        ids, mask = (by_answers(tok, [messages]) if template in ("chatml", "colon") else by_template(tok, [record]))[0]
        trained = [i for i, m in enumerate(mask) if m]
        text = tok.apply_chat_template(messages, tokenize=False, tools=more.get("tools"), **more.get("chat_template_kwargs", {}))
        cases.append({"name": name, "template": template, "record": record, "text": text, "ids": ids,
                      "trained": ranges(trained)})
    lines = ",\n".join(json.dumps(c) for c in cases)
    (GOLDEN / "chat.json").write_text(f'{{"date": {list(DATE)}, "cases": [\n{lines}\n]}}\n')


def ranges(indices):
    """[[first, end], ...]"""
    out = []
    for i in indices:
        if out and out[-1][1] == i:
            out[-1][1] = i + 1
        else:
            out.append([i, i + 1])
    return out


if __name__ == "__main__":
    if sys.argv[1:2] == ["golden"]:
        sys.exit(make_golden())
    if sys.argv[1:2] == ["compare"]:
        sys.exit(not compare_all(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]) if len(sys.argv) > 5 else 200))
    sys.exit(__doc__)
