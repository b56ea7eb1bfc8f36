"""Compares the template engine with jinja2, set up as transformers sets it up.

    compare_jinja.py BUILD [TEMPLATE.jinja ...] [--programs N] [--seed S]

BUILD is a build folder with libath_jinja.a and libath_base.a. Each template is rendered with each conversation of
jinja_cases.py; then N random programs are rendered. Both must fail, or give the same bytes and the same spans of
generation blocks."""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import jinja_cases
import jinja_programs

HERE = pathlib.Path(__file__).resolve().parent


def compile_renderer(build, out):
    subprocess.run(["cc", "-std=c17", "-D_GNU_SOURCE", "-I", HERE.parent.parent / "src", HERE / "render_jinja.c",
                    f"{build}/libath_jinja.a", f"{build}/libath_base.a", "-ljansson", "-lutf8proc", "-lxxhash", "-lyaml",
                    "-lgomp", "-lm", "-lpthread", "-o", out], check=True)


class Renderer:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, template, context, spans=False):
        job = json.dumps({"template": template, "context": context, "spans": spans})
        self.process.stdin.write(job.encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def expected(template, context, spans):
    try:
        text, found = jinja_cases.render(template, context, spans)
        text.encode()
        return {"text": text, "spans": found}
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"}


def compare(renderer, name, template, context, spans, counts):
    want = expected(template, context, spans)
    if " at 0x" in want.get("text", ""):  # an object printed with its address
        return True
    got = renderer.render(template, context, spans)
    same = "error" in got if "error" in want else want == got
    counts["same" if same else "different"] += 1
    counts["errors"] += "error" in want
    if not same and counts["different"] <= 20:
        print(f"DIFFERENT {name}\n  want {json.dumps(want)[:1500]}\n  got  {json.dumps(got)[:1500]}")
    return same


def compare_templates(renderer, paths, counts):
    good = 0
    for path in paths:
        template = pathlib.Path(path).read_text()
        spans = "{% generation" in template or "{%- generation" in template
        results = [compare(renderer, f"{path}: {name} {sorted(kwargs)}", template, jinja_cases.context_of(chat, kwargs),
                           spans, counts) for name, chat, kwargs in jinja_cases.cases()]
        good += all(results)
    print(f"templates: {good} of {len(paths)} agree everywhere; {counts}")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("templates", nargs="*")
    a.add_argument("--programs", type=int, default=2000)
    a.add_argument("--seed", type=int, default=1)
    args = a.parse_args()
    counts = {"same": 0, "different": 0, "errors": 0}
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/render"
        compile_renderer(args.build, program)
        renderer = Renderer(program)
        if args.templates:
            compare_templates(renderer, args.templates, counts)
        fixed = jinja_programs.FIXED
        for i, template in enumerate(fixed):
            compare(renderer, f"fixed {i}: {template!r}", template, jinja_programs.CONTEXT, False, counts)
        print(f"fixed programs: {len(fixed)}; {counts}")
        rng = random.Random(args.seed)
        for i in range(args.programs):
            template = jinja_programs.typed_program(rng) if i % 2 else jinja_programs.program(rng)
            compare(renderer, f"random {i}: {template!r}", template, jinja_programs.CONTEXT, False, counts)
        print(f"random programs: {args.programs}; {counts}")
    sys.exit(counts["different"] > 0)


if __name__ == "__main__":
    main()
