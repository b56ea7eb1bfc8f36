"""The public openai client against a server: every call that programs make, whole and in streams.

    check_server.py URL [MODEL]         needs: pip install openai

What is asked of the answers holds for any model: types that the client checks, streams equal to whole
answers, log-probabilities in their places, errors as the client's exceptions. Exits 1 at the first breach.
"""
import json
import sys

import openai

url = sys.argv[1].rstrip("/")
client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
models = client.models.list().data
model = sys.argv[2] if len(sys.argv) > 2 else models[0].id
assert model in [m.id for m in models], models
talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name three colours."}]
greedy = dict(model=model, temperature=0, max_tokens=24)

# Chats: whole, streamed, with log-probabilities.
whole = client.chat.completions.create(messages=talk, **greedy)
message = whole.choices[0].message
assert message.role == "assistant" and message.content, whole
assert whole.usage.completion_tokens <= 24 and whole.usage.total_tokens > whole.usage.completion_tokens
text, finish, usage = "", None, None
for chunk in client.chat.completions.create(
    messages=talk, stream=True, stream_options={"include_usage": True}, **greedy
):
    if chunk.choices:
        text += chunk.choices[0].delta.content or ""
        finish = chunk.choices[0].finish_reason or finish
    usage = chunk.usage or usage
assert text == message.content and finish == whole.choices[0].finish_reason, (text, message.content)
assert usage.completion_tokens == whole.usage.completion_tokens
many = client.chat.completions.create(
    messages=talk, model=model, max_tokens=8, n=3, seed=7, logprobs=True, top_logprobs=4
)
assert [c.index for c in many.choices] == [0, 1, 2]
again = client.chat.completions.create(
    messages=talk, model=model, max_tokens=8, n=3, seed=7, logprobs=True, top_logprobs=4
)
assert [c.message.content for c in many.choices] == [c.message.content for c in again.choices]
for choice in many.choices:
    for token in choice.logprobs.content:
        assert len(token.top_logprobs) == 4 and token.logprob <= 0
        assert bytes(token.bytes).decode("utf-8", "replace") == token.token
parts = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
assert client.chat.completions.create(messages=parts, **greedy).choices[0].message.content

# Texts.
done = client.completions.create(prompt="The capital of France is", logprobs=3, echo=True, **greedy)
lp = done.choices[0].logprobs
assert done.choices[0].text.startswith("The capital of France is")
assert len(lp.tokens) == len(lp.token_logprobs) == len(lp.top_logprobs) == len(lp.text_offset)
assert lp.token_logprobs[0] is None and lp.top_logprobs[0] is None
assert all(done.choices[0].text[o:].startswith(t) for o, t in zip(lp.text_offset, lp.tokens))
new = done.usage.completion_tokens
for value, top in zip(lp.token_logprobs[-new:], lp.top_logprobs[-new:]):
    assert value == max(top.values()) and len(top) == 3
streamed = "".join(
    c.choices[0].text
    for c in client.completions.create(prompt="The capital of France is", stream=True, **greedy)
)
assert "The capital of France is" + streamed == done.choices[0].text
both = client.completions.create(prompt=["One, two,", "A, B,"], n=2, **greedy)
assert [c.index for c in both.choices] == [0, 1, 2, 3]
assert both.choices[0].text == both.choices[1].text != both.choices[2].text
stop = both.choices[0].text[4:8]
cut = client.completions.create(prompt="One, two,", stop=[stop], **greedy).choices[0]
assert cut.finish_reason == "stop" and both.choices[0].text.startswith(cut.text) and stop not in cut.text

# JSON, and a schema.
schema = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
made = client.chat.completions.create(
    messages=talk,
    model=model,
    max_tokens=64,
    response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": schema}},
)
person = json.loads(made.choices[0].message.content)
assert set(person) == {"name", "age"} and isinstance(person["age"], int), person
made = client.chat.completions.create(
    messages=talk, model=model, max_tokens=96, response_format={"type": "json_object"}
)
assert isinstance(json.loads(made.choices[0].message.content), dict)

# Tools, where the model's template knows any.
tools = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "adds two numbers",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
                "additionalProperties": False,
            },
        },
    }
]
ask = dict(messages=[{"role": "user", "content": "What is 2 + 3?"}], model=model, tools=tools, max_tokens=96)
if next(m for m in models if m.id == model).meta["tools"]:
    for choice in ("required", {"type": "function", "function": {"name": "add"}}):
        answer = client.chat.completions.create(tool_choice=choice, **ask).choices[0]
        call = answer.message.tool_calls[0]
        assert answer.finish_reason == "tool_calls" and call.function.name == "add" and call.id
        assert set(json.loads(call.function.arguments)) == {"a", "b"}
        calls = []
        for chunk in client.chat.completions.create(tool_choice=choice, stream=True, **ask):
            calls += (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []
        assert calls[0].index == 0 and json.loads(calls[0].function.arguments)
    follow = ask["messages"] + [
        {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
        {"role": "tool", "tool_call_id": call.id, "content": "5"},
    ]
    client.chat.completions.create(messages=follow, model=model, tools=tools, max_tokens=8)
else:
    try:
        client.chat.completions.create(**ask)
        sys.exit("tools were taken by a model that knows none")
    except openai.BadRequestError as e:
        assert e.code == "no_tools", e

# Errors are the client's exceptions.
for kind, fields in (
    (openai.NotFoundError, {"model": "none"}),
    (openai.BadRequestError, {"temperature": -1}),
    (openai.BadRequestError, {"messages": talk * 1000}),
):
    try:
        client.chat.completions.create(**{**greedy, "messages": talk, **fields})
        sys.exit(f"{fields} was accepted")
    except kind as e:
        assert e.body["message"], e

# A client that stops reading in the middle; the server goes on.
stream = client.chat.completions.create(messages=talk, model=model, max_tokens=200, stream=True)
next(iter(stream))
stream.close()
assert client.chat.completions.create(messages=talk, **greedy).choices[0].message.content == message.content
print(f"openai {openai.__version__}: all answers as the client expects them, model {model}")
