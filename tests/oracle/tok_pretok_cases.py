"""Pre-tokenizers and texts for compare_pretok.py and make_tok_pretok.py."""
import random
import unicodedata

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
R50K = "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s"
LLAMA3 = (CONTRACTIONS + "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
          "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" + REST)
CL100K = ("'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+"
          "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s")
NANOCHAT = ("'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,2}"
            "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+")
QWEN35 = (CONTRACTIONS + "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
          "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" + REST)
A, B = "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}", "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"


def cased(a, b, suffix, number, tail):
    p = "[^\\r\\n\\p{L}\\p{N}]?"
    return (f"{p}[{a}]*[{b}]+{suffix}|{p}[{a}]+[{b}]*{suffix}|{number}"
            f"| ?[^\\s\\p{{L}}\\p{{N}}]+{tail}|{REST}")


O200K = cased(A, B, CONTRACTIONS + "?", "\\p{N}{1,3}", "[\\r\\n/]*")
TEKKEN = cased(A, B, "", "\\p{N}", "[\\r\\n/]*")
NOT_HAN = "&&[^\\p{Han}]"
KIMI = "[\\p{Han}]+|" + cased(A + NOT_HAN, B + NOT_HAN, CONTRACTIONS + "?", "\\p{N}{1,3}",
                              "[\\r\\n]*")
DEEPSEEK = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
            "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+"
            "|\\s+(?!\\S)|\\s+")
KANA = "[一-龥぀-ゟ゠-ヿ]+"
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"

# Patterns with a hand-written matcher, by Oniguruma's reading.
PATTERNS = {
    "gpt2": GPT2, "r50k": R50K, "llama3": LLAMA3, "cl100k": CL100K,
    "cl100k plain": CL100K.replace("{1,3}+", "{1,3}"), "nanochat": NANOCHAT,
    "qwen2": LLAMA3.replace("{1,3}", ""), "minicpm5": LLAMA3.replace("{1,3}", "+"),
    "qwen35": QWEN35, "bailingmoe": NANOCHAT.replace("{1,2}", ""),
    "ufakzeka": LLAMA3.replace(CONTRACTIONS + "|", "").replace("{1,3}", ""),
    "o200k": O200K, "youtu": O200K.replace("{1,3}", ""), "tekken": TEKKEN, "kimi": KIMI,
    "deepseek": DEEPSEEK, "deepseek escaped": DEEPSEEK.replace("\r\n", "\\r\\n"), "kana": KANA,
    "bloom": BLOOM, "n": "\\p{N}", "n+": "\\p{N}+", "n2": "\\p{N}{1,2}", "n3": "\\p{N}{1,3}",
}

# Patterns for the general engine: published ones without a matcher, the matched ones in another
# spelling, and what Oniguruma reads in a way of its own.
REGEXES = [f"(?:{p})" for p in PATTERNS.values()] + [
    "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", "[\r\n]", "\\s+$", "[0-9][0-9][0-9]",
    "\\d{1,3}(?=(?:\\d{3})*\\b)", "(?=(\\d{3})+(?!\\d))", "\\w+|[^\\w\\s]+", "\\W+", "\\S+", "\\s",
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\\x{3040}-ゟ゠-ヿ]+", "[^\\n]+|[\\n]+",
    CONTRACTIONS + "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
    CONTRACTIONS + "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|" + REST,
    LLAMA3.replace("\\s+(?!\\S)|\\s+", "\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"),
    "\\p{N}{1,3}+", "\\p{N}{3}?", "\\p{N}{,2}", "a++$", "$", "^", "\\h+", "(?i:'s)", "(?i:k|ſ|Å|σ)+",
    "[[a-c][x]]+", "[^a[bc]]+", "[a-z&&[^aeiou]]+", "[^a-z&&[^aeiou]]+", "[^&&a]", "[a&&]",
    "[a-z&&b-y&&[^c]]+", "\\p{^L}+", "\\P{L}+", "[\\P{L}\\d]+", "\\p{Hiragana}+", "\\u4e2d+",
    "\\x{4e2d}+", "\\xE4\\xB8\\xAD+", "(?<=a)b", "(?<=a+)b", "(?<!a)b", "(?<=\\s|^)\\w", "a\\z",
    "a\\Z", "(?m:.)+", ".+", "(?x: a b # c\n )", "a(?i)b|c", "\\bx\\b", "\\B.", "\\R", "[[:alpha:]]+",
    "[[:^alpha:][:punct:]]+", "\\O", "\\N+", "[]a]+", "[\\d\\-x]+", "\\p{Punct}+", "\\p{Graph}+",
    "\\p{Alnum}+", "\\p{Upper}\\p{Lower}*", "\\p{Emoji}", "\\p{Greek}+|\\p{Cyrillic}+", "(?>a+)b",
    "a*?b", "", "(|a)", "\\e\\a\\f\\v\\n\\t\\r", "{", "a{", "a**", "(?:a*)*", "(?:a|b|ab)*c",
    "(?:\\p{L}{2}){2,3}", "(?:ab?){2,}?", "\\p{L}+?\\b", "[a-]+", "[-a]+", "[\\w-]+", "[a\\b]+",
    "(?=a)", "x*", "\\b", "(?<n>a)b", "(?i)[^a-z]+", "(?i:straße|élan)", "((?!b)[ab]??)+", "(?i:[\\w&&[^a]])+",
    "(?<!é?+).", "\\p{Lu}\\N\\w?+(?<!\\O++)|[^\\s\\p{L}]", "(?:(?i)[\\]]?+|c)+", "(?i)a(?:[b-d]{1,2}?|é)*+",
    "(?<=\\b\\w{1,3}|\\s)\\W", "\\p{Lo}|\\p{Mn}|\\p{Co}+",
]


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def byte_level(**options):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True,
            **options}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")


def types():
    yield "none", None
    for name in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer", "UnicodeScripts"):
        yield name, {"type": name}
    for b in BEHAVIORS:
        yield f"Punctuation {b}", {"type": "Punctuation", "behavior": b}
        for invert in (False, True):
            yield f"Split literal {b} {invert}", split({"String": " a"}, b, invert)
            yield f"Split bloom {b} {invert}", split({"Regex": BLOOM}, b, invert)
            yield f"Split gpt2 {b} {invert}", split({"Regex": GPT2}, b, invert)
            yield f"Split empty {b} {invert}", split({"Regex": "(?=\\p{L})"}, b, invert)
    yield "Punctuation", {"type": "Punctuation"}
    for single in (False, True):
        yield f"Digits {single}", {"type": "Digits", "individual_digits": single}
    for scheme in ("always", "first", "never"):
        for cut in (False, True):
            yield f"Metaspace {scheme} {cut}", {"type": "Metaspace", "replacement": "▁",
                                                "prepend_scheme": scheme, "split": cut}
    yield "Metaspace old", {"type": "Metaspace", "replacement": "_", "add_prefix_space": True,
                            "str_rep": "_"}
    yield "CharDelimiterSplit", {"type": "CharDelimiterSplit", "delimiter": "é"}
    for n in (1, 2, 5):
        yield f"FixedLength {n}", {"type": "FixedLength", "length": n}
    for prefix in (False, True):
        for regex in (False, True):
            yield f"ByteLevel {prefix} {regex}", byte_level(add_prefix_space=prefix, use_regex=regex)
    yield "T5", sequence({"type": "WhitespaceSplit"},
                         {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always",
                          "split": True})
    yield "first twice", sequence({"type": "Whitespace"},
                                  {"type": "Metaspace", "replacement": "▁",
                                   "prepend_scheme": "first", "split": True})
    yield "ChatLM", sequence({"type": "Punctuation", "behavior": "Isolated"},
                             {"type": "Digits", "individual_digits": True},
                             {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always",
                              "split": True})
    yield "smollm", sequence({"type": "Digits", "individual_digits": True}, byte_level())
    yield "falcon", sequence({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(),
                             {"type": "Digits", "individual_digits": False},
                             split({"Regex": "[0-9][0-9][0-9]"}))
    yield "bytes twice", sequence(byte_level(), byte_level(use_regex=False))
    yield "bytes with prefix twice", sequence(byte_level(add_prefix_space=True), byte_level())
    yield "deepseek-v3", sequence(split({"Regex": "\\p{N}{1,3}"}), split({"Regex": KANA}),
                                  split({"Regex": DEEPSEEK}), byte_level(use_regex=False))
    yield "deepseek-coder", sequence(split({"Regex": "[\r\n]"}), split({"Regex": "\\s?\\p{L}+"}),
                                     split({"Regex": "\\s?\\p{P}+"}),
                                     split({"Regex": "[一-龥ࠀ-一가-퟿]+"}),
                                     {"type": "Digits", "individual_digits": True},
                                     byte_level(use_regex=False))
    yield "dolma2", sequence(split({"Regex": LLAMA3}, "Removed", True), byte_level(use_regex=False))


def pre_tokenizers():
    yield from types()
    for name, pattern in PATTERNS.items():
        yield f"pattern {name}", split({"Regex": pattern})
    for pattern in REGEXES:
        yield f"regex {pattern}", split({"Regex": pattern})


def alphabet(pre_tokenizer, texts):
    """The characters a model may meet behind a pre-tokenizer."""
    kinds = [pre_tokenizer or {}] + (pre_tokenizer or {}).get("pretokenizers", [])
    if any(k.get("type") == "ByteLevel" for k in kinds):
        plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        more = [b for b in range(256) if b not in plain]
        return sorted(map(chr, plain)) + [chr(0x100 + i) for i in range(len(more))]
    return sorted(({"▁", "_"} | set("".join(texts))) - {"\0"})


def code_point_texts():
    """Every assigned code point, alone and among letters, digits, spaces and marks."""
    assigned = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and
                unicodedata.category(chr(c)) not in ("Cn", "Co")]
    ideographs = [c for c in assigned if 0x3400 <= c < 0xA000 or 0xAC00 <= c < 0xD7A4 or c >= 0x20000]
    rest = sorted(set(assigned) - set(ideographs[97:]) | {0xE000, 0xFFFF, 0x10FFFF, 0x1CCF0, 0x11DE0,
                                                          0x16FF4, 0x10D69, 0x1E5F0, 0x2FFC})
    for i in range(0, len(rest), 48):
        yield " ".join(f"{c}{c} a{c}B1{c}!{c}\n{c}'s{c} é{c}中" for c in map(chr, rest[i:i + 48]))


WORDS = ("the Furnace don't WE'LL it'ſ I'M naïve e\u0301 Straße Москва ОГОНЬ Αθήνα ὈΔΥΣΣΕΎΣ 炉火 金属 "
         "ひらがな カタカナー 々〇 ⺀⼀ 한국어 نارذهب हिन्दी ไทยคำ ǅungla İstanbul x2 123 4567890 ٣٤٥٦ ½Ⅷ ²³ "
         "HTTPServer iPhone camelCase SHOUTing ÅÄÖ éÉ µΩ ⓐⓩ 🅰 🄰").split()
BITS = ["'", "'s", "'S", "'ll", "'Ve", "'d", "''", " ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n",
        "\n ", "\u00a0", "\u2003", "\u3000", "\u0085", "\u2028", "\u180e", "\u200b", "\u200d", ".", ",",
        "!?", "…", "。", "，", "(", ")", "[x]", "{}", "//", "/", "/\n", "--", "_", "@", "#", "$1", "+", "=",
        "\u0301", "\u0903", "\u20dd", "\u309a", "\U0001f600", "👍🏽", "👩\u200d👩\u200d👧", "🇩🇪", "\x00", "\x01",
        "\x1c", "\x7f", "\ufeff", "\ue000", "\U0010ffff", "\ufffd", "▁", "Ġ", "a", "B", "é", "É", "ﬁ", "ß"]


def random_texts(n, rng):
    for _ in range(n):
        k = rng.randint(1, 60)
        pool = rng.choice((WORDS, BITS, WORDS + BITS, WORDS + BITS))
        glue = rng.choice(("", "", " ", " "))
        yield glue.join(rng.choice(pool) for _ in range(k))
    for _ in range(n // 4):
        yield "".join(chr(c) for c in (rng.choice((rng.randrange(0x80), rng.randrange(0x3000),
                                                   rng.randrange(0x20000)))
                                       for _ in range(50)) if not 0xD800 <= c < 0xE000)
    for _ in range(n // 4):
        yield "".join(rng.choice("aAbB'sS1 \n\r.中é\u0301ǅ/") for _ in range(40))


FIXED = ["", " ", "  ", "a", "Hello, world!", "don't DON'T we'LL", "x   y    z     ", "\n", " \n", "\n ",
         "a \n b", "12345678901234567890 1,000.5", " " * 70 + "x", "a" * 300, "1" * 101, "= " * 40,
         "for (i = 0; i < 10; i++) {\r\n\treturn x[i]; // done\r\n}\r\n", "   leading", "trailing   ",
         "see https://example.org/a/b?c=d#e now", "中文和English混排。日本語も！한국어도."]


def texts(quick=False):
    rng = random.Random(5)
    every = [] if quick else list(code_point_texts())
    return FIXED + list(random_texts(60 if quick else 600, rng)) + every
