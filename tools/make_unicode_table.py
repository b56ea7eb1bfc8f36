#!/usr/bin/env python3
"""Writes src/tok/text/unicode_table.c (class bits per code point) and src/tok/text/unicode_sets.c
(general categories, scripts and a few more properties as ranges).

All of it is asked code point by code point of the engines inside Hugging Face `tokenizers`
(Oniguruma for patterns, Rust's tables and crates for the rest), because equal ids need equal
classes; Python's own unicodedata may be several Unicode versions behind. tiktoken's engine gives
the same answers (only its \\w differs, by the joiners and six superscripts and fractions).
Needs: pip install tokenizers. Usage, from the repository root (a few minutes):

    python tools/make_unicode_table.py
"""
import pathlib

import tokenizers
from tokenizers import Regex, pre_tokenizers

OUT = pathlib.Path(__file__).resolve().parent.parent / "src" / "tok" / "text"
LIMIT = 0x110000
POINTS = [c for c in range(LIMIT) if not 0xD800 <= c < 0xE000]

CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So "
              "Zs Zl Zp Cc Cf Co").split() # as enum uni_category; Cs is not text
UPPER, LOWER, CASELESS, MARK, NUMBER, SPACE, PUNCT, SYMBOL = (1 << i for i in range(8))
BITS = {"Lu": UPPER, "Lt": UPPER, "Ll": LOWER, "Lm": CASELESS, "Lo": CASELESS, "M": MARK,
        "N": NUMBER, "P": PUNCT, "S": SYMBOL}
SCRIPTS = """Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak
    Bengali Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian
    Caucasian_Albanian Chakma Cham Cherokee Chorasmian Common Coptic Cuneiform Cypriot Cypro_Minoan
    Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan Egyptian_Hieroglyphs Elbasan Elymaic
    Ethiopic Garay Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi Gurmukhi
    Gurung_Khema Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic
    Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi
    Kayah_Li Kharoshthi Khitan_Small_Script Khmer Khojki Khudawadi Kirat_Rai Lao Latin Lepcha Limbu
    Linear_A Linear_B Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic Manichaean Marchen
    Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao
    Modi Mongolian Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari New_Tai_Lue Newa Nko Nushu
    Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Ol_Onal Old_Hungarian Old_Italic Old_North_Arabian
    Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya
    Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan
    Saurashtra Sharada Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese
    Sunuwar Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangsa Tangut
    Telugu Thaana Thai Tibetan Tifinagh Tirhuta Todhri Toto Tulu_Tigalari Ugaritic Vai Vithkuqi
    Wancho Warang_Citi Yezidi Yi Zanabazar_Square""".split()


def text_of(points):
    return "".join(map(chr, points))


def members(pattern):
    """What a pattern for one character matches in Oniguruma."""
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    found = set()
    for base in range(0, len(POINTS), 4096):
        for word, _ in split.pre_tokenize_str(text_of(POINTS[base:base + 4096])):
            found.update(map(ord, word))
    return found


def cut_off(pre_tokenizer):
    """Characters that a pre-tokenizer cuts off a letter before them."""
    return {c for c in POINTS if len(pre_tokenizer.pre_tokenize_str("a" + chr(c))) == 2}


def sentencepiece_scripts():
    """The script of each code point as UnicodeScripts sees it: a number per script, 0 for those
    that belong to any. A character that is alone vanishes when it has no script of its own."""
    split = pre_tokenizers.UnicodeScripts()
    script, first = [0] * LIMIT, []
    last = None
    for c in POINTS:
        if not split.pre_tokenize_str(chr(c)):
            continue
        if last is not None and len(split.pre_tokenize_str(chr(last) + chr(c))) == 1:
            script[c] = script[last]
        else:
            same = [k for k, f in enumerate(first)
                    if len(split.pre_tokenize_str(chr(f) + chr(c))) == 1]
            script[c] = same[0] + 1 if same else len(first) + 1
            if not same:
                first.append(c)
        last = c
    return script


def ranges(found):
    edges = []
    for c in sorted(found):
        if edges and edges[-1] == c:
            edges[-1] = c + 1
        else:
            edges += [c, c + 1]
    return edges


def starts(values):
    """Where a value begins that differs from the one before: start << 8 | value."""
    return [c << 8 | v for c, v in enumerate(values) if c == 0 or values[c - 1] != v]


def rows(kind, name, values, form="%d"):
    lines, line = [f"{kind} {name}[{len(values)}] = {{"], "   "
    for v in values:
        item = " " + form % v + ","
        if len(line) + len(item) > 100:
            lines.append(line)
            line = "   "
        line += item
    return "\n".join(lines + [line, "};\n"])


def head(what):
    return (f"/* Generated by tools/make_unicode_table.py from tokenizers {tokenizers.__version__}; do not "
            f"edit.\n * {what} */\n#include \"tok/text/unicode.h\"\n\n/* clang-format off */\n")


def write_table(bits):
    size = 128
    while True:
        blocks, index = {}, []
        for base in range(0, LIMIT, size):
            index.append(blocks.setdefault(bytes(bits[base:base + size]), len(blocks)))
        if len(blocks) <= 256:
            break
        size *= 2
    assert size == 128, "uni_bits() expects blocks of 128"
    ascii_only = list(bits[:128]) + [0] * 128
    with open(OUT / "unicode_table.c", "w") as f:
        f.write(head("Class bits of each code point, in blocks of 128 that are stored once."))
        f.write(rows("const uint8_t", "uni_byte", ascii_only))
        f.write(rows("const uint8_t", "uni_index", index))
        f.write(rows("const uint8_t", "uni_block", [b for block in blocks for b in block]))
        f.write("/* clang-format on */\n")


def write_sets(category, script, sentencepiece, sets, extra):
    with open(OUT / "unicode_sets.c", "w") as f:
        f.write(head("Properties as ranges; see unicode_sets.h.").replace(
            "unicode.h\"", "unicode_sets.h\""))
        for name, values in (("uni_category_starts", category), ("uni_script_starts", script),
                             ("uni_spm_script_starts", sentencepiece)):
            values = starts(values)
            f.write(rows("const uint32_t", name, values, "0x%x"))
            f.write(f"const int {name}_n = {len(values)};\n")
        f.write("const char *const uni_script_names[] = {\n    NULL,\n")
        for name in SCRIPTS:
            f.write(f"    \"{name.replace('_', '').lower()}\",\n")
        f.write("};\n" + f"const int uni_script_names_n = {len(SCRIPTS) + 1};\n")
        f.write(f"const int uni_script_han = {SCRIPTS.index('Han') + 1};\n")
        for name, found in sets + extra:
            f.write(rows("static const uint32_t", name, ranges(found), "0x%x"))
        f.write("const uni_set uni_sets[] = {\n")
        for name, found in sets:
            f.write(f"    {{\"{name.replace('_', '')}\", {name}, {len(ranges(found)) // 2}}},\n")
        f.write("};\n" + f"const int uni_sets_n = {len(sets)};\n")
        for name, found in extra:
            f.write(f"const uni_set uni_{name} = {{NULL, {name}, {len(ranges(found)) // 2}}};\n")
        f.write("/* clang-format on */\n")


def main():
    bits, category, script = bytearray(LIMIT), bytearray(LIMIT), bytearray(LIMIT)
    for name, bit in BITS.items():
        for c in members(f"\\p{{{name}}}"):
            bits[c] |= bit
    for c in members("\\s"):
        bits[c] |= SPACE
    assert all(b & (b - 1) == 0 for b in bits), "a character is in two classes"
    for k, name in enumerate(CATEGORIES):
        for c in members(f"\\p{{{name}}}"):
            category[c] = k
    for k, name in enumerate(SCRIPTS):
        for c in members(f"\\p{{{name}}}"):
            assert script[c] == 0
            script[c] = k + 1
    number, punct = members("\\p{N}"), members("\\p{P}")
    digits = cut_off(pre_tokenizers.Digits(individual_digits=True))
    marks = cut_off(pre_tokenizers.Punctuation())
    assert number <= digits
    sets = [(name, members(f"\\p{{{name}}}")) for name in
            ("alphabetic", "uppercase", "lowercase", "graph", "print", "emoji",
             "extended_pictographic", "ideographic", "word")]
    extra = [("numeric_more", digits - number), # Digits has a newer Unicode than \p{N}
             ("punct_not", punct - marks), # Punctuation an older one than \p{P}
             ("punct_more", {c for c in marks - punct if c >= 0x80})]
    write_table(bits)
    write_sets(category, script, sentencepiece_scripts(), sets, extra)


main()
