"""Compares `athanor tok chat` with apply_chat_template of transformers: text, ids, assistant masks, open messages.

    compare_chat.py PROGRAM TOKENIZER.json TEMPLATE.jinja ..."""
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

from transformers import PreTrainedTokenizerFast

import jinja_cases

CHATS = ["system", "turns", "unicode", "thinking", "thinking last", "calls", "two calls", "list content", "late system", "full"]


def ours(program, folder, chat, flags):
    path = folder / "messages.json"
    path.write_text(json.dumps({"messages": chat}))
    done = subprocess.run([program, "tok", "chat", folder, path, "--json", *flags], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stdout + done.stderr}


def theirs(tokenizer, chat, mask, **kwargs):
    try:
        text = tokenizer.apply_chat_template(chat, tokenize=False, **kwargs)
        coded = tokenizer.apply_chat_template(chat, tokenize=True, return_dict=True,
                                              return_assistant_tokens_mask=mask, **kwargs)
        return {"text": text, "ids": coded["input_ids"], "mask": coded.get("assistant_masks")}
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"}


def main():
    program, tokenizer_json, *templates = sys.argv[1:]
    different = total = errors = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=tokenizer_json, **jinja_cases.SPECIAL)
        for path, chat_name, keep_open in itertools.product(templates, CHATS, [False, True]):
            tokenizer.chat_template = pathlib.Path(path).read_text()
            tokenizer.save_pretrained(folder)
            mask = "{% generation" in tokenizer.chat_template or "{%- generation" in tokenizer.chat_template
            mask = mask and not keep_open
            chat = jinja_cases.CONVERSATIONS[chat_name]
            want = theirs(tokenizer, chat, mask, add_generation_prompt=not keep_open, continue_final_message=keep_open)
            flags = ["--ids"] + ["--mask"] * mask + ["--continue"] * keep_open
            got = ours(program, folder, chat, flags)
            same = "error" in got if "error" in want else all(got.get(k) == v for k, v in want.items())
            total += 1
            errors += "error" in want
            if not same:
                different += 1
                print(f"DIFFERENT {path} {chat_name} {keep_open}\n  want {str(want)[:600]}\n  got  {str(got)[:600]}")
    print(f"{total} conversations, {errors} of them refused by both, {different} different")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
