#!/usr/bin/env python3
"""Golden figures of tests/tok/test_report.c, made by Hugging Face `tokenizers`.

Writes tests/golden/tok/report.json: texts, their words, and for each tokenizer of that folder the
figures of check_tok_report.py over all texts. Run from anywhere."""
import json
import pathlib

from tokenizers import Tokenizer

from check_tok_report import WORD, measure

OUT = pathlib.Path(__file__).resolve().parent.parent / "golden" / "tok"
TEXTS = [
    "The furnace that feeds itself holds its heat for weeks: we don't know what they'll find.\n",
    "naïve cafe\u0301 Größe ½ x² 3.14 1000000 snake_case e-mail  \u0301a Ⅷ ٣٤٥\n",
    "Москва, огонь и печь. Αθήνα — φωτιά! नमस्ते दुनिया आग। مرحبا بالعالم نار\n",
    "人人生而自由,金属と炉火。ほのお、カタカナー。が\u3099 々〇 불꽃 연금술 한국어\n",
    "มนุษย์ทั้งหลายเกิดมา ສະບາຍດີ ភាសាខ្មែរ မြန်မာ ๓\n",
    "int main(void) { return x[i] + 0x1F; } // <mask> <|endoftext|> \U0001f600\U0001f44d\U0001f3fd 𠀀𠀁\n",
    " \n\t",
]


def main():
    (OUT / "report.json").write_text(
        json.dumps(
            {
                "texts": [{"text": t, "words": WORD.findall(t)} for t in TEXTS],
                "tokenizers": [
                    {"file": name, "figures": measure(Tokenizer.from_file(str(OUT / name)), TEXTS)}
                    for name in ("bpe_gpt2.json", "bpe_llama3.json", "char.json")
                ],
            },
            ensure_ascii=False,
            indent=1,
        )
        + "\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
