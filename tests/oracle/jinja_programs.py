"""Small templates: fixed ones on the fine points, random ones of any values, and random ones by a grammar of types,
most of which render."""
import re

CONTEXT = {
    "s": "Hello, World", "e": "", "u": "Straße ΑΣ 日本 🔥", "q": "it's \"x\"\n", "i": 7, "z": 0, "neg": -7, "f": 2.5,
    "big": 1e16, "small": 1e-05, "whole": 3.0, "t": True, "no": False, "nil": None, "l": [3, 1, 2],
    "words": ["b", "A", "c", "a"], "mixed": [1, "a", None, 2.5, True, [1], {"k": "v"}], "none": [],
    "d": {"a": 1, "b": [1, 2], "items": "mine", "Z": None}, "empty": {},
    "rows": [{"n": 2, "s": "x", "o": {"p": 5}}, {"n": 1, "s": "Y", "o": {"p": 3}}, {"n": 2, "s": "a"}],
    "spaces": "  a  b\tc \n", "csv": "a,b,,c,", "html": "<a href='x'>&</a>", "lines": "one\ntwo\r\n\nthree",
    "num": "42", "fnum": " 42.5 ", "xnum": "0x1F",
}

FIXED = r"""
{{ s }}|{{ nil }}|{{ t }}|{{ f }}|{{ big }}|{{ small }}|{{ whole }}|{{ l }}|{{ d }}|{{ mixed }}|{{ missing }}
{{ q }}{{ [q] }}{{ ['a\'b"c'] }}{{ ["\u00e9\x41\101\n"] }}{{ ['\u200b\ue000'] }}{{ "a\
b" }}
{{ 'a' 'b' "c" }}
{{ 1 + 2 * 3 - 4 // 3 % 2 ** 3 }}{{ -7 // 2 }}{{ -7 % 3 }}{{ 7 % -3 }}{{ 7 / 2 }}{{ 2 ** -1 }}{{ -2 ** 2 }}{{ 7.5 // 2 }}{{ -7.5 % 2 }}
{{ 1 / 3 }} {{ 0.1 + 0.2 }} {{ 1e100 }} {{ 1e22 }} {{ 1e15 }} {{ 123456789.123 }} {{ 5e-324 }} {{ 1_000 }} {{ 0xff }} {{ 0b11 }} {{ 0o17 }} {{ 1.5e3 }}
{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 1 == 1.0 }}{{ true == 1 }}{{ 'a' < 'b' }}{{ [1, 2] < [1, 3] }}{{ (1, 2) == [1, 2] }}{{ nil == missing }}
{{ 'ell' in s }}{{ 3 in l }}{{ 'a' in d }}{{ 'x' not in d }}{{ 1 in missing }}{{ '' in '' }}{{ nil in mixed }}
{{ not t }}{{ t and 'x' }}{{ e or 'y' }}{{ t and no or 5 }}{{ not not l }}{{ none or none }}
{{ 'a' if t }}{{ 'a' if no }}|{{ 'a' if no else 'b' }}{{ 'a' if no else 'b' if no else 'c' }}
{{ s[0] }}{{ s[-1] }}{{ s[99] }}{{ s[1:3] }}{{ s[::-1] }}{{ s[-3:] }}{{ u[2:8] }}{{ u[::2] }}{{ u[-1] }}{{ l[1:] }}{{ l[::-1] }}{{ l[5:] }}{{ l[:-1] }}
{{ d.a }}{{ d['b'][1] }}
{{ d['items'] }}{{ d.missing }}|{{ d['missing'] }}|{{ d.Z }}
{{ d.get('a') }}{{ d.get('x') }}{{ d.get('x', 5) }}{{ d.keys() | list }}{{ d.values() | list }}{{ d.items() | list }}{{ d.keys() }}{{ d.items() }}
{{ missing.x }}
{{ missing() }}
{{ missing['x'] }}
{{ d.missing.x }}
{{ missing is defined }}{{ d.x is defined }}{{ d.a is defined }}{{ nil is none }}{{ s is string }}{{ d is mapping }}{{ l is sequence }}{{ d is sequence }}{{ l is iterable }}{{ i is number }}{{ t is boolean }}{{ t is number }}{{ t is integer }}{{ f is float }}{{ i is odd }}{{ i is divisibleby 7 }}{{ i is divisibleby(2) }}{{ 'a' is in s }}{{ missing is sequence }}{{ missing is iterable }}{{ nil is iterable }}{{ missing is mapping }}{{ missing is string }}{{ missing is none }}{{ t is true }}{{ 1 is true }}{{ no is false }}
{{ i is eq 7 }}{{ i is equalto(7) }}{{ i is ne 7 }}{{ i is lt 8 }}{{ i is ge 8 }}{{ s is lower }}{{ 'A' is upper }}{{ nil is sameas none }}{{ d.get is callable }}
{{ x is not defined }}{{ not x is defined }}{{ x is not none }}
{{ l | length }}{{ s | count }}{{ d | length }}{{ missing | length }}{{ u | length }}
{{ spaces | trim }}|{{ 'xxaxx' | trim('x') }}|{{ spaces.strip() }}|{{ spaces.lstrip() }}|{{ spaces.rstrip() }}|{{ 'xyaxy'.strip('yx') }}
{{ spaces.split() }}{{ spaces.split(' ') }}{{ csv.split(',') }}{{ csv.split(',', 1) }}{{ csv.rsplit(',', 2) }}{{ spaces.rsplit(none, 1) }}{{ spaces.split(none, 1) }}{{ csv.split(',')[-1] }}{{ lines.splitlines() }}{{ lines.splitlines(true) }}
{{ 'a-b-c'.partition('-') }}{{ 'a-b-c'.rpartition('-') }}{{ 'abc'.partition('-') }}{{ 'abc'.rpartition('x') }}
{{ s.upper() }}{{ s.lower() }}{{ u.upper() }}{{ u.lower() }}{{ 'hELLO wORLD'.title() }}{{ "it's a x-y (z)" | title }}{{ 'hELLO' | capitalize }}{{ u.capitalize() }}{{ 'aBc'.swapcase() }}{{ 'ﬁß'.upper() }}{{ 'ΑΣ ΑΣΑ'.lower() }}{{ 'ΐΰ'.upper() }}
{{ 'Straße ﬁΣς ŉ µ'.casefold() }}{{ 'ǅ'.casefold() }}{{ ''.casefold() }}
{{ s.startswith('Hell') }}{{ s.startswith(('x', 'H')) }}{{ s.endswith('d') }}{{ s.endswith('l', 0, 4) }}{{ s.startswith('W', 7) }}{{ 'a'.startswith('', 5) }}{{ 'a'.startswith('', 1) }}
{{ s.find('o') }}{{ s.rfind('o') }}{{ s.find('x') }}{{ s.count('l') }}{{ u.find('日') }}{{ s.find('o', 5) }}{{ s.index('W') }}{{ 'aaa'.count('') }}{{ 'abc'.find('', 3) }}{{ 'abc'.find('', 4) }}
{{ s.index('zz') }}
{{ s.replace('l', 'L') }}{{ s.replace('l', 'L', 1) }}{{ 'abc'.replace('', '-') }}{{ 'abc'.replace('', '-', 2) }}{{ s | replace('o', '0') }}{{ 12321 | replace(2, 'x') }}
{{ '-'.join(words) }}{{ ''.join([]) }}{{ words | join }}{{ words | join(', ') }}{{ mixed | join('|') }}{{ rows | join(',', attribute='s') }}{{ rows | join(',', 'n') }}
{{ '-'.join(l) }}
{{ 'x'.center(5, '-') }}{{ 'xy'.center(5, '-') }}{{ 'x'.ljust(3) }}|{{ 'x'.rjust(3, '0') }}{{ '-5'.zfill(4) }}{{ 'x' | center(6) }}|
{{ 'prefix-x'.removeprefix('prefix-') }}{{ 'x.py'.removesuffix('.py') }}{{ 'abc'.isalpha() }}{{ '12'.isdigit() }}{{ ''.isdigit() }}{{ 'a1'.isalnum() }}{{ ' '.isspace() }}{{ 'aB'.islower() }}
{{ words | sort }}{{ words | sort(case_sensitive=true) }}{{ words | sort(reverse=true) }}{{ rows | sort(attribute='n') | map(attribute='s') | list }}{{ rows | sort(attribute='n,s') | map(attribute='s') | join }}
{{ d | dictsort }}
{{ {'b': 1, 'A': 2, 'c': 0} | dictsort }}{{ {'b': 1, 'A': 2, 'c': 0} | dictsort(true) }}{{ {'b': 1, 'A': 2} | dictsort(false, 'value') }}{{ {'b': 1, 'A': 2} | dictsort(reverse=true) }}
{{ rows | map(attribute='o.p') | list }}
{{ rows | map(attribute='o.p', default=0) | list }}{{ rows | map(attribute='n') | sum }}{{ rows | sum(attribute='n') }}{{ words | map('upper') | list }}{{ words | map('replace', 'a', 'z') | list }}
{{ rows | selectattr('o') | list | length }}{{ rows | selectattr('n', 'equalto', 2) | map(attribute='s') | list }}{{ rows | rejectattr('n', 'eq', 2) | list }}{{ rows | selectattr('n', 'in', [1, 5]) | list }}{{ rows | selectattr('o.p', 'defined') | list | length }}{{ rows | selectattr('s', '==', 'x') | first }}
{{ mixed | select | list }}{{ mixed | select('string') | list }}{{ mixed | reject('none') | list }}{{ l | select('gt', 1) | list }}{{ l | select('odd') | join(',') }}
{{ l | first }}{{ l | last }}{{ none | first }}|{{ l | min }}{{ l | max }}{{ words | max }}{{ none | max }}|{{ l | sum }}{{ [1.5, 2] | sum }}{{ words | unique | list }}{{ [1, 1.0, true, 2] | unique | list }}
{{ l | reverse | list }}{{ s | reverse }}{{ l | list }}{{ s | list }}{{ d | list }}{{ d | items | list }}{{ missing | items | list }}{{ missing | list }}{{ l | batch(2) | list }}{{ l | batch(2, 'x') | list }}
{{ missing | default('d') }}{{ nil | default('d') }}{{ nil | default('d', true) }}{{ e | d('x', boolean=true) }}{{ d.x | default }}|
{{ '12' | int }}{{ 'x' | int }}{{ 'x' | int(5) }}{{ '12.7' | int }}{{ 12.7 | int }}{{ '0x1F' | int(0, 16) }}{{ '1e3' | int }}{{ ' 5 ' | int }}{{ nil | int }}{{ '1_0' | int }}{{ -3.7 | int }}
{{ '1.5' | float }}{{ 'x' | float }}{{ 3 | float }}{{ nil | float(2.0) }}{{ -5 | abs }}{{ -5.5 | abs }}{{ 2.5 | round }}{{ 3.5 | round }}{{ 2.675 | round(2) }}{{ 2.4 | round(0, 'ceil') }}{{ 25 | round }}{{ 1.25 | round(1, 'floor') }}
{{ html | escape }}{{ html | e }}{{ html | safe }}{{ (html | safe) + '<x>' }}{{ '<x>' + (html | safe) }}{{ html | safe ~ '<y>' }}{{ html | upper }}{{ html | forceescape }}
{{ 'a\nb\n\nc' | indent }}{{ 'a\nb' | indent(2, true) }}{{ 'a\n\nb' | indent(2, blank=true) }}{{ 'a\nb' | indent('> ') }}{{ '' | indent }}|{{ 'a\n' | indent }}|
{{ 'foo bar baz qux' | truncate(9) }}{{ 'foo bar baz qux' | truncate(9, true) }}{{ 'foo bar baz qux' | truncate(11) }}{{ 'foo bar' | truncate(3, leeway=0) }}{{ "a b-c d_e" | wordcount }}
{{ '%s is %d and %.2f' % ('x', 5, 1.005) }}{{ '%5s|%-5s|%05d|%+d|%x|%r|%%|%e|%g' % ('a', 'b', 42, 7, 255, 'q', 12345.678, 0.0001) }}{{ '%(a)s' % d }}{{ '%s' % l }}{{ '%s' % s }}{{ '%s %s' | format('a', 1) }}{{ '%(x)s' | format(x=3) }}
{{ '%d' % 'x' }}
{{ '%s %s' % ('a',) }}
{{ '%s' % ('a', 'b') }}
{{ '{} {}'.format(1, 'a') }}{{ '{0}{1}{0}'.format('a', 'b') }}{{ '{x}{{}}'.format(x=nil) }}
{{ s | tojson }}{{ q | tojson }}{{ u | tojson }}{{ u | tojson(ensure_ascii=true) }}{{ d | tojson }}{{ mixed | tojson }}{{ [1.0, 1e16, 1e-7, -0.0, none, true] | tojson }}{{ {} | tojson }}{{ [] | tojson }}{{ (1, 'x') | tojson }}{{ html | tojson }}{{ '\x7f\x1f\u2028' | tojson }}{{ '\x7f\u0080' | tojson(true) }}
{{ d | tojson(indent=2) }}{{ d | tojson(indent=4) }}{{ [] | tojson(indent=2) }}{{ [[], {}] | tojson(indent=1) }}{{ {'b': 1, 'a': {'d': 1, 'c': 2}} | tojson(sort_keys=true) }}{{ d | tojson(separators=(',', ':')) }}{{ d | tojson(indent='\t') }}{{ [1] | tojson(indent=0) }}{{ d | tojson(indent=2, separators=(', ', ' = ')) }}{{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}
{{ missing | tojson }}
{{ d.items() | tojson }}
{{ l | map('string') | tojson }}
{% for x in l %}{{ x }}{% endfor %}{% for x in [] %}a{% else %}none{% endfor %}{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for c in 'añb' %}{{ c }}.{% endfor %}{% for x in missing %}x{% endfor %}
{% for x in nil %}{% endfor %}
{% for x in words %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('o', 'e') }}{{ loop.depth }}{{ loop.changed(x) }};{% endfor %}
{% for x in words if x != 'A' %}{{ loop.index }}{{ x }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{% endfor %}
{% for x in l %}{% if loop.index == 2 %}{% continue %}{% endif %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% endfor %}{% for x in l %}{% break %}{% else %}no{% endfor %}
{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}{% if t %}{% set x = 9 %}{% endif %}{{ x }}
{% for i in l %}{% if loop.first %}{% set y = 5 %}{% endif %}[{{ y }}]{% endfor %}[{{ y }}]
{% set ns = namespace(a=1, b=[]) %}{% for i in l %}{% set ns.a = ns.a + i %}{% set ns.c = i %}{% endfor %}{{ ns.a }}{{ ns.c }}{{ ns.nope }}{{ ns.b }}{{ ns['a'] }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns }}
{% set d.x = 1 %}
{% set ns = namespace() %}{% set ns._x = 1 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, %}{{ c }}{% set (p, q) = [3, 4] %}{{ p }}{{ q }}
{% set a, b = [1] %}
{% set x %}a{{ s }}b{% endset %}[{{ x }}]{% set x | upper | replace('A', 'z') %}a{{ s }}b{% endset %}[{{ x }}]
{% macro m(a, b='B', c=a) %}({{ a }}{{ b }}{{ c }}){% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=5, a=3) }}{{ m() }}{{ m(1, 2, 3) }}{{ m.name }}{{ m(*[1, 2]) }}{{ m(**{'a': 'k'}) }}
{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(x=2) }}
{% macro f(n) %}{{ n }}{% if n > 0 %},{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}{{ f(3) | upper | length }}
{% set g = 1 %}{% macro m() %}{{ g }}{{ i }}{% set g = 7 %}{{ g }}{% endmacro %}{{ m() }}{% set g = 2 %}{{ m() }}{{ g }}
{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}
{% with a = 1, b = 2 %}{{ a }}{{ b }}{% set s = 3 %}{{ s }}{% endwith %}{{ a }}{{ s }}
{% filter upper | replace('A', 'x') %}abc{{ s }}{% endfilter %}
{% raw %}{{ x }}{% if %}{% endraw %}{# comment {{ x }} #}{%- raw -%}   a   {%- endraw -%}  b
  {% if t %}
    x
  {% endif %}
  y {% if t %} z {% endif %}
  {#- c -#}   w  {%+ if t %}  v {%- endif +%}
end
a {{- s -}} b {{ s }} c {%- if t -%} d {%- endif -%} e
	 {% for x in l %}
 - {{ x }}
	 {% endfor %}

done
{{ "{{" }}{{ '%}' }}{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a':{'b':{}}} }}
{{ range(5) | list }}{{ range(2, 8, 3) | list }}{{ range(5, 0, -2) | list }}{{ range(3) }}{{ range(1, 4)[1] }}{{ range(0) | length }}{{ range(3)[::-1] | list }}{{ range(0, 10, 3) }}
{{ range(1000000) }}
{{ dict(a=1, b=2) }}{{ dict({'x': 1}, y=2) }}{{ dict([('a', 1)]) }}
{{ l.append(4) }}
{% set _ = d.update({'x': 1}) %}
{{ l.append }}|{{ s.__class__ }}|{{ d.pop }}
{{ s.__class__() }}
{{ l.index(2) }}{{ l.count(3) }}{{ (1, 2).index(2) }}{{ d.copy() }}{{ l.copy() }}
{{ raise_exception('no ' ~ s) }}
{{ 1 + 'a' }}
{{ 'a' + 1 }}
{{ 'a' ~ 1 ~ nil ~ 2.0 ~ [1] ~ missing }}
{{ 'ab' * 3 }}{{ 2 * 'x' }}{{ [0] * 3 }}{{ [1] + [2] }}{{ (1,) + (2,) }}{{ -1 * 'a' }}{{ true + 1 }}
{{ [1] + (2,) }}
{{ missing + 1 }}
{{ 1 / 0 }}
{{ 'a' < 1 }}
{{ nil.x }}|{{ i.x }}|{{ i['x'] }}|{{ nil[0] }}|{{ l['a'] }}|{{ l.x }}|{{ l[1.5] }}|{{ d[[1]] }}
{{ () }}{{ (1,) }}{{ (1, 2) }}{{ [] }}{{ {} }}{{ [1, ] }}{{ {'a': 1, } }}{{ 1, 2 }}
{{ l.0 }}{{ rows.0.o.p }}{{ rows[0]['o']['p'] }}{{ rows | map(attribute=0) | list }}
{{ -l[0] }}{{ -1 | abs }}{{ (-1) | abs }}{{ 2 * -3 }}{{ - - 1 }}{{ +1 }}{{ -true }}
{{ 'a' is string and 'b' is string }}{{ 5 is number == true }}{{ not 5 is string }}{{ 'x' in ['x'] and 'y' not in ['x'] }}
{{ foo is filter }}{{ 'upper' is filter }}{{ 'nope' is filter }}{{ 'defined' is test }}
{{ s | nope }}
{% if no %}{{ s | nope }}{% endif %}ok
{% if t %}{{ s | nope }}{% endif %}ok
{{ s is nope }}
{% nope %}
{% if t %}
{% endif %}
{{ s
{% for x in l %}{{ x }}
{{ 'abc }}
{{ a b }}
{{ 007 }}
{{ [1, 2 }}
{{ x) }}
{% break %}
{% set x = %}
{% for x.y in l %}{% endfor %}
{{ loop }}
{{ loop is defined }}{% for x in l %}{{ loop is defined }}{% endfor %}
{% for x in l %}{% for y in words %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
{% set o = l | map('string') %}{{ o | list }}{{ o | list }}
{% set o = rows | selectattr('n') %}{% for x in o %}{{ x.n }}{% endfor %}{% for x in o %}{{ x.n }}{% endfor %}{{ o is defined }}{{ 'T' if o else 'F' }}
{{ l | map('string') | length }}
{{ l | map('string') | first }}{{ (l | select)[0] }}|
{{ none | list }}{{ none is none }}
{{ "a" "b" ~ 'c' }}{{ 'a' ~ 'b' + 'c' }}{{ 1 ~ 2 * 3 }}
{% print s, 1 %}{% print(s) %}
{{ spaces.split('a')[0] ~ '|' }}{{ (spaces | trim).split()[-1] }}{{ s.split(', ')[1][:3] }}
{% generation %}x{{ s }}{% set k = 5 %}{{ k }}{% endgeneration %}{{ k }}
{{ '\q\d' }}{{ "\0" | length }}
{{ 9223372036854775807 }}{{ -9223372036854775807 }}
{% if s and l and not no and (i > 5 or nil) %}yes{% elif t %}b{% else %}c{% endif %}{% if no %}{% elif nil %}{% else %}c{% endif %}
{{ s
 | upper }}{{
s }}
{%- set x = 'a'
   ~ 'b' -%}
{{ x }}
{{ rows[-1].s }}{{ rows[1:][0].s }}{{ rows | length - 1 }}{{ rows | length > 2 }}{{ (rows | length) * 2 }}
{{ d.b | last }}{{ (d.b | join('-')) ~ '!' }}{{ [d.a, d.b] | string | length }}{{ 5 | string + 'x' }}
{{ nil | trim }}{{ 5 | upper }}{{ t | lower }}{{ nil | length }}
{{ t | string }}{{ f | string ~ 'x' }}{{ missing | string }}|{{ missing | upper }}|{{ missing | trim }}
{{ [missing] }}{{ {'a': missing} }}{{ [nil, t, 1.0, 'x'] | string }}
{{ [s | safe] }}{{ missing | last }}{{ missing | reverse | list }}{{ 'x' % missing }}{{ 1e16 // -3.0 }}{{ -0.5 // 2 }}{{ 0.0 // -1 }}{{ 7.5 // 2.5 }}
{{ (-0.3) | round(0, 'ceil') }}{{ (-0.04) | round(1, 'ceil') }}{{ [(s | safe)[::2], s | safe | indent] }}{{ s[:2] | safe | list }}
""".strip("\n").split("\n")
# Templates of several lines.
FIXED += ["\n  {% if t %}\n    x\n  {% endif %}\n  y\n", "{% for x in l %}\n  - {{ x }}\n{% endfor %}\n\nend\n\n",
          "a\r\nb\rc\n", "  {# c #}\n  x {# d #}\n", "{%- if t %}\n\n a\n{%- endif %}\n\n", "x\n\n  {%- if t -%}\n\n y \n {%- endif -%} \n z",
          "{% raw %}\n a {{ b }}\n{% endraw %}\n c", "  {% raw %} a {% endraw %}  \n", "{% set x %}\n  a\n  {% if t %}\n b\n  {% endif %}\n{% endset %}[{{ x }}]",
          "\n\n", "", " ", "  {%+ if t %}\n a{% endif +%}\n b", "{#- a -#}\n\n x\n\n {#+ b +#}\n c", "\t{% if t %}\t\n\t{% endif %}\t\n",
          "a\u2028  {% if t %}x{% endif %}", "\u3000 {%- if t -%} \u3000x{% endif %}", "{{ s }}\n{{- s }}\n\n{{ s -}}\n\n", "{{+ s }}"]

VALUES = ["s", "e", "u", "q", "i", "z", "neg", "f", "big", "t", "no", "nil", "l", "words", "mixed", "none", "d", "rows", "spaces",
          "csv", "missing", "d.a", "d.b", "rows[0]", "rows[0].s", "l[0]", "1", "2.5", "'x'", "'a,b'", "[1, 2]", "{'k': 1}", "(1, 'b')",
          "d.items()", "rows[1].o.p", "s[1:4]", "words[::-1]", "lines", "num", "-3", "true", "html", "whole", "loop.index"]
FILTERS = ["upper", "lower", "trim", "length", "list", "first", "last", "join(',')", "string", "tojson", "default('z')", "int",
           "float", "sort", "reverse | list", "unique | list", "sum", "max", "min", "title", "capitalize", "replace('a', 'b')", "items | list",
           "map('string') | list", "select | list", "reject('none') | list", "selectattr('n') | list",
           "map(attribute='s') | list", "dictsort", "abs", "round",
           "safe", "escape", "indent(2)", "tojson(indent=2)", "batch(2) | list", "wordcount", "truncate(5)", "default('q', true)", "count"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "sequence", "iterable", "number", "integer", "float", "boolean",
         "true", "false", "odd", "eq 1", "in [1, 's']", "lower", "upper", "callable", "divisibleby 2", "gt 2", "sameas none"]
METHODS = [".upper()", ".strip()", ".split(',')", ".split()", ".startswith('a')", ".get('a')", ".get('n', 3)", ".items()", ".keys()",
           "[0]", "[-1]", "[1:]", "[::-1]", "['a']", ".a", ".n", "[:2]", ".replace('l', '')", ".title()", ".count('a')",
           ".find('b')", ".lstrip('H ')", ".values()", ".splitlines()", "[::2]", ".index(1)", ".endswith('d')", ".append(1)"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or", "**"]


def expression(rng, depth):
    kind = rng.randrange(11) if depth > 0 else 0
    sub = lambda: expression(rng, depth - 1)
    if kind <= 2:
        return rng.choice(VALUES)
    if kind == 3:
        op = rng.choice(OPERATORS)
        return f"({rng.choice(VALUES)} ** {rng.choice(['2', '0', 'f'])})" if op == "**" else f"({sub()} {op} {sub()})"
    if kind in (4, 5):
        return f"{sub()} | {rng.choice(FILTERS)}"
    if kind == 6:
        return f"({sub()} is {rng.choice(['', 'not '])}{rng.choice(TESTS)})"
    if kind in (7, 8):
        return f"({sub()}){rng.choice(METHODS)}"
    if kind == 9:
        return f"({sub()} if {sub()} else {sub()})"
    return rng.choice([f"[{sub()}, {sub()}]", f"{{'a': {sub()}, 's': {sub()}}}", f"not ({sub()})", f"-({sub()})", f"({sub()}, 1)"])


def statement(rng, depth):
    kind = rng.randrange(9) if depth > 0 else 0
    name = rng.choice(["x", "y", "i", "s", "l"])
    tag = lambda text: "{%" + rng.choice(["", "-", "+"][: rng.choice([1, 1, 2])]) + f" {text} " + rng.choice(["", "-", ""]) + "%}"
    body = lambda: "".join(statement(rng, depth - 1) for _ in range(rng.randrange(1, 3)))
    expr = lambda: expression(rng, 2)
    if kind <= 2:
        return f"{{{{ {expression(rng, 3)} }}}}"
    if kind == 3:
        return rng.choice(["text", "\n", "  ", "\n  ", " a\n", "{# c #}"])
    if kind == 4:
        return tag(f"if {expr()}") + body() + (tag("else") + body() if rng.random() < 0.4 else "") + tag("endif")
    if kind == 5:
        test = f" if {name}" if rng.random() < 0.2 else ""
        return tag(f"for {name} in {rng.choice(['l', 'words', 'rows', 'd', 'mixed', expr()])}{test}") + body() + tag("endfor")
    if kind == 6:
        return tag(f"set {name} = {expr()}")
    if kind == 7:
        return tag(f"set {name}") + body() + tag("endset")
    return tag(f"macro m({name}, k=1)") + body() + tag("endmacro") + f"{{{{ m({expr()}) }}}}"


def program(rng):
    return "".join(statement(rng, 3) for _ in range(rng.randrange(1, 4)))


# What a value of a type is written as; <type> stands for another one.
TYPED = {
    "str": ["s", "e", "u", "q", "spaces", "csv", "html", "lines", "'x'", "'a,b'", "' '", "'é\\n'", "rows[0].s", "d['items']",
            "(<str> + <str>)", "(<any> ~ <any>)", "(<str> | upper)", "(<str> | title)", "(<str> | trim)", "(<str> | safe)",
            "(<str> | escape)", "(<str> | indent(2, true))", "(<str> | truncate(7, true, leeway=0))", "(<str> | center(9))",
            "(<str> | replace(<str>, <str>))", "<str>.strip(<str>)", "<str>.replace(<str>, 'l', 1)", "<str>.zfill(6)",
            "<str>.rjust(8, '*')", "(<strs> | join(<str>))", "<str>.join(<strs>)", "(<any> | tojson)", "(<any> | tojson(indent=2))",
            "(<any> | string)", "<str>[1:]", "<str>[::-1]", "<str>[2:8:3]", "(<str> * 2)", "(<str> if <bool> else <str>)",
            "('%s:%5s|%-4s|%r' % (<any>, <str>, <int>, <any>))", "('%d %05.2f %e %g' % (<int>, <float>, <float>, <float>))",
            "'{}-{}'.format(<any>, <str>)", "<str>.partition(',')[2]", "m(<str>)", "m(<str>, b=<any>)", "(missing | default(<str>))"],
    "int": ["i", "z", "neg", "1", "-3", "10", "l[0]", "rows[1].n", "d.a", "0x1f", "(<int> + <int>)", "(<int> * <int>)", "(<int> // 3)",
            "(<int> % -5)", "(<str> | length)", "(<any> | string | length)", "<str>.find(<str>)", "<str>.count(<str>)", "(<str> | int)",
            "(<float> | int)", "(<int> | abs)", "(<ints> | sum)", "((<ints> + [<int>]) | max)", "(<str> | wordcount)"],
    "float": ["f", "whole", "small", "big", "-0.5", "1e-7", "(<float> - <int>)", "(<float> * <float>)", "(<int> / 3)", "(<float> % 3)",
              "(<float> // 2)", "(<float> | round(1))", "(<float> | round(1, 'ceil'))", "(<int> | float)", "(<str> | float)"],
    "bool": ["t", "no", "(<int> < <float>)", "(<str> >= <str>)", "(<str> in <strs>)", "(<any> is sequence)", "(<any> is not string)",
             "(<int> is odd)", "(<str> is upper)", "not <bool>", "(<bool> and <bool>)", "(<bool> or <bool>)", "<str>.endswith(<str>)",
             "<str>.isalnum()", "(1 < <int> <= 7)", "(<ints> == <ints>)", "(<any> == <any>)", "('a' in <dict>)"],
    "strs": ["words", "csv.split(',')", "['b', 'A', '']", "(rows | map(attribute='s') | list)", "[]", "<str>.split()", "<str>.rsplit('l', 1)",
             "<str>.splitlines(true)", "(<strs> | sort)", "(<strs> | unique | list)", "(<strs> | reverse | list)", "(<strs> + <strs>)",
             "(<strs> | map('replace', 'a', <str>) | list)", "(<strs> | reject('in', words) | list)", "(<str> | list)", "<strs>[1:]"],
    "ints": ["l", "[1, 2, 2]", "(range(6, 0, -2) | list)", "d.b", "[<int>, <int>]", "(<ints> | sort(reverse=true))", "(<ints> + <ints>)",
             "(<ints> | select('odd') | list)", "(<ints> | map('abs') | list)", "<ints>[::-1]", "(<ints> * 2)"],
    "dict": ["d", "rows[0]", "empty", "{'a': <any>, 's': <any>}", "dict(<dict>, z=<any>)", "{1: <any>, none: <str>}"],
    "any": ["nil", "mixed", "(1, 'a')", "(<dict> | items | list)", "<str>", "<str>", "<int>", "<float>", "<bool>", "<strs>", "<ints>",
            "<dict>", "(rows | selectattr('n', 'eq', 2) | list)", "(rows | sort(attribute='n,s'))", "ns.a", "x", "y"],
    "stmt": ["{{ <any> }}", "{{- <any> -}}", "text", "\n  ", " a\n", "{# c #}", "{% set x = <any> -%}", "{%- set ns.a = <any> %}",
             "{% if <bool> %}<stmt><stmt>{% else %}<stmt>{% endif %}", "{% for w in <strs> %}{{ loop.index }}{{ w }}<stmt>{% endfor %}",
             "{% for v in <ints> if v %}{{ loop.last }}{% if <bool> %}{% continue %}{% endif %}<stmt>{% else %}<stmt>{% endfor %}\n",
             "{% for k, v in <dict>.items() -%}\n {{ k }}{% set y = v %}{{ loop.cycle('a', 'b') }}<stmt>{% endfor %}",
             "{% set y %}<stmt>{% endset %}", "{% filter upper %}<stmt>{% endfilter %}", "{% with x = <any> %}<stmt><stmt>{% endwith %}"],
}


def expand(rng, kind, depth):
    choices = TYPED[kind] if depth > 0 else [t for t in TYPED[kind] if "<" not in t]
    return re.sub(r"<([a-z]+)>", lambda m: expand(rng, m[1], depth - 1), rng.choice(choices))


def typed_program(rng):
    head = ("{%- set ns = namespace(a=1) %}{% set x = 'X' %}{% set y = 'Y' %}"
            "{% macro m(p, b='B') %}<{{ p }}{{ b }}{% if p %}!{% endif %}>{% endmacro %}")
    return head + "".join(expand(rng, "stmt", 5) for _ in range(4))
