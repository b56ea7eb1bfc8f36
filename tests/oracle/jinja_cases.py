"""Conversations, programs and the environment that compare_jinja.py and make_jinja_golden.py share."""
import functools
import itertools

from transformers.utils import chat_template_utils

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a <city> & \"more\" – über",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "the city", "enum": ["Köln", "Paris"]},
            "days": {"type": ["integer", "null"], "default": 3},
            "where": {"type": "object", "properties": {"lat": {"type": "number", "minimum": -1.5e-7}},
                      "required": ["lat"]},
            "list": {"type": "array", "items": {"type": "string"}}},
            "required": ["city"]},
        "return": {"type": "string", "description": "the weather"}}},
    {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {
        "type": "object", "properties": {}}}},
]
DOCUMENTS = [{"title": "One", "text": "first text", "contents": "first"}, {"title": "Zwei", "text": "zweiter"}]


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, **more):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


USER = message("user", "Hello, how are you?")
SYSTEM = message("system", "You are a furnace.\n  Be hot.\n")
ANSWER = message("assistant", "  I am fine.\n\n")
CALLS = [call("get_weather", {"city": "Köln", "days": 2, "where": {"lat": 1.0}, "list": ["a", 'b"c']}, id="abcdefghi")]
TEXT_CALLS = [call("get_weather", '{"city": "Paris"}', id="abcdefghi")]
CONVERSATIONS = {
    "empty": [],
    "one": [USER],
    "system": [SYSTEM, USER],
    "only system": [SYSTEM],
    "turns": [USER, ANSWER, message("user", "More!"), message("assistant", "No."), message("user", "Why?")],
    "full": [SYSTEM, USER, ANSWER, message("user", " x "), message("assistant", "y\n")],
    "unicode": [message("user", "Straße 🔥 ＡＢＣ \u2028 é ß\tE\u0000"), message("assistant", "日本語 <b>&'\"\\"),
                message("user", "'quoted' {{ x }} {% raw %}")],
    "blanks": [message("system", ""), message("user", ""), message("assistant", "   "), message("user", "\n")],
    "thinking": [USER, message("assistant", "<think>\nhm, 1 + 1\n</think>\n\nTwo."), message("user", "And?"),
                 message("assistant", "<think>a</think>b", reasoning_content="because\n"), message("user", "ok")],
    "thinking last": [USER, message("assistant", "Two.", reasoning_content=" hm ", thinking="t")],
    "no_think": [message("system", "Short. /no_think"), message("user", "hi /think"), message("assistant", "yes")],
    "override": [message("system", "Be strict. /system_override"), USER],
    "calls": [SYSTEM, message("user", "Weather?"), message("assistant", "", tool_calls=CALLS),
              message("tool", '{"sun": true}', name="get_weather", tool_call_id="abcdefghi"),
              message("assistant", "Sunny."), message("user", "Thanks")],
    "calls null": [message("user", "Weather?"), message("assistant", None, tool_calls=CALLS),
                   message("tool", "21.5", name="get_weather", tool_call_id="abcdefghi")],
    "text calls": [message("user", "Weather?"), message("assistant", "Let me see.", tool_calls=TEXT_CALLS),
                   message("tool", "rain", name="get_weather", tool_call_id="abcdefghi")],
    "two calls": [message("user", "Weather?"), message("assistant", None, tool_calls=CALLS + [call("now", {}, id="123456789")]),
                  message("tool", "rain", name="get_weather", tool_call_id="abcdefghi"),
                  message("tool", {"hour": 12, "zone": None, "ok": False}, name="now", tool_call_id="123456789"),
                  message("assistant", "Rain at noon.")],
    "bare calls": [message("user", "Weather?"), message("assistant", "x", tool_calls=[CALLS[0]["function"]]),
                   message("ipython", "rain"), message("assistant", "done")],
    "list content": [message("system", [{"type": "text", "text": "Sys"}]),
                     message("user", [{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": "?"}]),
                     message("assistant", [{"type": "text", "text": "A cat."}])],
    "images": [message("user", [{"type": "image", "url": "x"}, {"type": "video", "video": "v"}, {"type": "audio"},
                                {"type": "image_url", "image_url": {"url": "u"}}, {"type": "text", "text": "what"}])],
    "null": [message("user", None), message("assistant", None)],
    "numbers": [message("user", 12), message("assistant", 1.5), message("user", True)],
    "no content": [{"role": "user"}, {"role": "assistant", "tool_calls": CALLS}],
    "no role": [{"content": "x"}],
    "odd roles": [message("developer", "Be kind."), USER, message("critic", "bad"), message("tool", "out")],
    "two users": [USER, USER, ANSWER, ANSWER],
    "assistant first": [ANSWER, USER],
    "late system": [USER, SYSTEM, ANSWER],
    "weights": [message("user", "a", weight=1), message("assistant", "b", weight=0, train=False, channel="final"),
                message("user", "c", name="Bob")],
    "long": [m for i in range(20) for m in (message("user", f"question {i}"), message("assistant", f"answer {i}"))],
}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def variants():
    """Keyword arguments beside the messages."""
    yield {}
    yield {"add_generation_prompt": True}
    yield {"tools": TOOLS}
    yield {"tools": TOOLS, "add_generation_prompt": True, "enable_thinking": False}
    yield {"add_generation_prompt": True, "enable_thinking": True, "documents": DOCUMENTS, "reasoning_effort": "high"}
    yield {"tools": [], "add_generation_prompt": True, "enable_thinking": False, "xml_tools": TOOLS, "thinking": True,
           "custom_instructions": "Mind.", "model_identity": "I am a test.", "builtin_tools": ["browser", "python"]}


def cases():
    for (name, chat), kwargs in itertools.product(CONVERSATIONS.items(), variants()):
        yield name, chat, kwargs


def context_of(chat, kwargs):
    """What transformers gives to the template."""
    context = {"messages": chat_template_utils._alias_reasoning_fields(chat), "tools": None, "documents": None,
               "add_generation_prompt": False}
    return {**context, **SPECIAL, **kwargs}


compiled_template = functools.lru_cache(maxsize=8)(chat_template_utils._cached_compile_jinja_template)


def render(template, context, spans=False):
    """(text, spans in bytes) as transformers renders it; raises what it raises."""
    compiled = compiled_template(template)
    if not spans:
        return compiled.render(**context), []
    blocks, found = [], []
    with compiled.environment.activate_tracker(blocks, found):
        for block in compiled.generate(**context):
            blocks.append(block)
    text = "".join(blocks)
    return text, [[len(text[:i].encode()) for i in pair] for pair in found]
