"""Writes ../golden/jinja/jinja.json: programs and conversations as jinja2 renders them in the environment of
transformers. Needs transformers; the templates of conversations are ../golden/jinja/chat/*.jinja."""
import datetime
import json
import pathlib
import warnings

import jinja_cases
import jinja_programs

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "jinja"
CHATS = ["system", "turns", "unicode", "blanks", "thinking", "no_think", "override", "calls", "two calls",
         "list content", "null", "odd roles", "two users"]
NOW = datetime.datetime(2026, 2, 3, 4, 5, 6)


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def render(template, context, spans):
    try:
        text, found = jinja_cases.render(template, context, spans)
        return {"text": text, **({"spans": found} if spans else {})}
    except Exception:
        return {"text": None}


def main():
    warnings.simplefilter("ignore")
    jinja_cases.chat_template_utils.datetime = Clock
    programs = [{"template": t, **render(t, jinja_programs.CONTEXT, False)} for t in jinja_programs.FIXED]
    programs = [p for p in programs if " at 0x" not in (p["text"] or "")]
    chats = []
    variants = [{}, {"add_generation_prompt": True, "tools": jinja_cases.TOOLS, "enable_thinking": False}]
    for path in sorted((GOLDEN / "chat").glob("*.jinja")):
        for name in CHATS:
            for kwargs in variants:
                context = jinja_cases.context_of(jinja_cases.CONVERSATIONS[name], kwargs)
                chats.append({"file": path.name, "name": name, "context": context,
                              **render(path.read_text(), context, True)})
    golden = {"context": jinja_programs.CONTEXT, "programs": programs, "chats": chats}
    (GOLDEN / "jinja.json").write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
