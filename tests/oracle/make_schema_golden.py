"""Makes tests/golden/schemas.json: random schemas, texts that are valid by PyPI's jsonschema in the form that our grammar
writes (they must be accepted), and texts near to them that are not valid (they must not).

    make_schema_golden.py PROGRAM MODEL OUT.json        MODEL as for check_schemas.py"""
import copy
import json
import pathlib
import random
import sys
import tempfile

import jsonschema

import check_schemas
from random_schemas import Schemas

OTHER = [None, True, 3, -1, 2.5, "", "abc", "a longer text", [], {}, [1], {"a": 1}]


def mutants(value, r):
    """The value with one thing in it changed, taken away or added."""
    yield r.choice(OTHER)
    if isinstance(value, (dict, list)):
        for k in value if isinstance(value, dict) else range(len(value)):
            for m in mutants(value[k], r):
                other = copy.copy(value)
                other[k] = m
                yield other
            other = copy.copy(value)
            del other[k]
            yield other
        if isinstance(value, dict):
            yield {**value, "one more": r.choice(OTHER)}
        else:
            yield value + [r.choice(OTHER)]
    if isinstance(value, str):
        yield value + "x"
        yield value[1:]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value + 1
        yield value - 1
        yield value * 1000 + 0.5


def main():
    program, model, out = sys.argv[1:4]
    r, all, seed = random.Random(1), [], 10000
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = check_schemas.random_model(folder, model.split(":", 1)[1]) if model.startswith("random:") else model
        while len(all) < 120:
            schema = Schemas(seed).whole()
            seed += 1
            if len(json.dumps(schema)) > 700:
                continue
            check = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER).is_valid
            answers = [check_schemas.answer(program, model, schema, i, 60, folder / "schema.json") for i in range(2)]
            if any(code != 0 for code, _ in answers):
                continue
            valid = sorted({a["text"] for _, a in answers if a["finish"] == "eos" and len(a["text"]) < 300})
            assert all_valid(valid, check), schema
            invalid = [json.dumps(m, ensure_ascii=False) for t in valid for m in mutants(json.loads(t), r) if not check(m)]
            all.append({"schema": schema, "valid": valid, "invalid": sorted(set(r.sample(invalid, min(6, len(invalid)))))})
    text = ",\n".join(json.dumps(x, ensure_ascii=False) for x in all)
    pathlib.Path(out).write_text(f"[{text}]\n")


def all_valid(texts, check):
    return all(check(json.loads(t)) for t in texts)


if __name__ == "__main__":
    main()
