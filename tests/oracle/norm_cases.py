"""Normalizers and texts that the scripts about normalizers share; not a script itself."""
import base64
import io
import random

import sentencepiece
from tokenizers import PreTokenizedString, Regex, Tokenizer

# Rules that remove, lengthen and shorten, at the start of clusters, too. The trie is sentencepiece's.
RULES = [("a", ""), ("ab", "X"), ("é", "ee"), ("A\u0301", "ZZ"), ("\u0301", ""), ("\r\n", "N"),
         ("\u3000", " "), ("¨", " \u0308"), ("\u4e00", "one two"), ("\U0001f468", "man"),
         ("©", "(c)"), ("\u0600", "Q"), ("क", ""), ("b", "BB")]
SYMBOLS = ["<x>", "ab", "a b", " c", "\u2581\u2581", "\u2581", "é", "  ", "\u4e00\u4e01"]

POOLS = [
    range(32, 127), [*range(0, 32), 127, 133], range(0xA0, 0x250), range(0x1100, 0x1200),
    [*range(0x300, 0x370), 0x5B0, 0x5BC, 0x64B, 0x651, 0x93C, 0x94D, 0x3099, 0x1DC0, 0x20D0,
     0x1D165, 0x1D16D, 0x302E],
    range(0xAC00, 0xAC60), range(0x900, 0x980), range(0x980, 0xE00), range(0x600, 0x700),
    [0x200B, 0x200C, 0x200D, 0x200E, 0x2028, 0x2029, 0x3000, 0x1680, 0xFEFF, 0xFFFD, 0x2581, 0xA0,
     0x2009, 0x85], range(0x1F1E6, 0x1F200),
    [0x1F468, 0x1F469, 0x200D, 0x2764, 0xFE0F, 0x1F3FD, 0xA9, 0x1F600, 0x231A],
    range(0x1E00, 0x2000), range(0xFB00, 0xFDFF), range(0xFF00, 0xFFEF), range(0x2100, 0x2200),
    [*range(0x4E00, 0x4E40), *range(0xF900, 0xFB00), 0x2F800, 0x20000, 0x2B920, 0x2B82F],
    range(0x3200, 0x3400), [*range(0x10400, 0x10450), 0x1E900, 0x1E921, 0x118A0, 0x16EA0],
    [*range(0x1D15E, 0x1D170), *range(0x11080, 0x110D0), 0x11131, 0x11127], range(0x1D400, 0x1D500),
    [32], [9, 10, 13, 32], [0x600, 0x6DD, 0x110BD, 0x61], range(0xE00, 0xFD0),
    [ord(c) for c in "aAbB\u0301"], [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]]

FIXED = ["", "a", " ", "  a  b ", "\r\n", "e\u0301", "\u0344", "\u1e9b\u0323",
         "a\u0315\u0300\u05aeb", "\uac00\u11a8", "\u1100\u1161\u11a8", "\uac00\u11a7", "\u0958",
         "\u212b", "\ufb01", "\ufdfa x", "İSTANBUL Straße ΑΣ", "a\u0301" * 20, "ab aab क\u0301",
         "\u4e00\u4e01 中文 x", "x\u0085\u00a0\t\r\n\x01\u200d", "नि\u094dक्ष", "🇩🇪🇫🇷🇬", "👨\u200d👩",
         "\u0600a ©\u200d©", "A\u0301 é e\u0301", "Llama  2: the  quick\nbrown fox"]


def random_text(rng):
    pools = rng.sample(POOLS, rng.choice([1, 2, 3, 5]))
    return "".join(chr(rng.choice(rng.choice(pools)))
                   for _ in range(rng.randint(1, rng.choice([3, 8, 30]))))


def texts(n, seed):
    rng = random.Random(seed)
    return FIXED + [random_text(rng) for _ in range(n)]


def step(kind, **keys):
    return {"type": kind, **keys}


def replace(pattern, content, regex=False):
    return step("Replace", pattern={"Regex" if regex else "String": pattern}, content=content)


def sequence(*steps):
    return step("Sequence", normalizers=list(steps))


def bert(clean, chinese, strip, lower):
    return step("BertNormalizer", clean_text=clean, handle_chinese_chars=chinese,
                strip_accents=strip, lowercase=lower)


def model_fields(data):
    """(field, value) of a protobuf message."""
    i = 0

    def varint():
        nonlocal i
        value = shift = 0
        while True:
            byte = data[i]
            i += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while i < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        n = {1: 8, 5: 4}.get(key & 7) or varint()
        yield key >> 3, data[i:i + n]
        i += n


def charsmap_of(model):
    for field, value in model_fields(model):
        if field == 3:
            return dict(model_fields(value)).get(2, b"")
    return b""


def sentencepiece_model(tsv=None, rule="identity", **options):
    """The bytes of a small sentencepiece model that normalizes by its own rules or named ones."""
    out = io.BytesIO()
    if tsv:
        with open(tsv, "w") as f:
            for old, new in RULES:
                f.write(" ".join("%X" % ord(c) for c in old) + "\t" +
                        " ".join("%X" % ord(c) for c in new) + "\n")
        options["normalization_rule_tsv"] = tsv
    else:
        options["normalization_rule_name"] = rule
    n_symbols = len(options.get("user_defined_symbols", []))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["hello world this is a text"] * 50), model_writer=out,
        vocab_size=30 + n_symbols, model_type="bpe", hard_vocab_limit=False, minloglevel=2,
        **options)
    return out.getvalue()


def precompiled(charsmap):
    return step("Precompiled", precompiled_charsmap=base64.b64encode(charsmap).decode())


def normalizers(rules):
    """All types of step, by the options that matter; `rules` is a charsmap."""
    strip = step("Strip", strip_left=True, strip_right=True)
    llama = sequence(step("Prepend", prepend="\u2581"), replace(" ", "\u2581"))
    return [
        *(step(t) for t in ("NFC", "NFD", "NFKC", "NFKD", "Nmt", "Lowercase", "StripAccents",
                            "ByteLevel")),
        strip, step("Strip", strip_left=True, strip_right=False),
        step("Strip", strip_left=False, strip_right=True), step("Prepend", prepend="xyz"), llama,
        replace("ab", "c"), replace("a", ""), replace("a", "long content here"), replace("", "-"),
        replace("é", "e"), replace(r"\s+", " ", True), replace(" {2,}", "\u2581", True),
        replace("[aeiou]*", "V", True), replace("(?=b)", "|", True),
        replace("^", "<", True), replace("$", ">", True),
        bert(True, True, None, True), bert(True, False, False, True), bert(True, True, None, False),
        bert(False, True, True, False), bert(False, False, None, True), precompiled(rules),
        sequence(precompiled(rules), strip, replace(" {2,}", "\u2581", True)),
        sequence(step("NFD"), step("Lowercase"), step("StripAccents")),
        sequence(step("NFKC"), step("NFD"), step("NFC")), sequence(),
        sequence(strip, step("NFD"), step("Prepend", prepend="ab"), replace("b", "ccc"),
                 step("ByteLevel")),
        sequence(step("Nmt"), step("NFKC"), replace(r"\s+", " ", True))]


def load(normalizer):
    import json
    from tokenizers import models
    tree = json.loads(Tokenizer(models.BPE()).to_str())
    tree["normalizer"] = normalizer
    return Tokenizer.from_str(json.dumps(tree)).normalizer


def places(normalizer, text):
    """The normalized text and, by character of it, [start, end) in bytes of `text`."""
    pieces = PreTokenizedString(text)
    if text:
        pieces.normalize(normalizer.normalize)
    pieces.split(lambda _, part: part.split(Regex("(?m:.)"), "isolated"))
    found = pieces.get_splits(offset_referential="original", offset_type="byte")
    return "".join(s[0] for s in found), [list(s[1]) for s in found]
