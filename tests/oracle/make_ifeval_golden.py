"""Verdicts of lm-evaluation-harness's IFEval checks on made-up answers: tests/golden/ifeval.json.

    pip install "lm_eval[ifeval]"; python tests/oracle/make_ifeval_golden.py

Punkt's English parameters are a download; without them its rules are the same, but it knows no abbreviations. The answers
here have none. Where langdetect's verdict is an accident (a text in capital letters, a few words) the answer is left out.
"""
import itertools
import json
import pathlib

import nltk

try:
    nltk.data.find("tokenizers/punkt_tab")
except LookupError:
    nltk.data.find = lambda *a, **k: None  # the harness would download it when it is imported
import langdetect
from lm_eval.tasks.ifeval import instructions_registry, instructions_util, utils

langdetect.DetectorFactory.seed = 0
punkt = nltk.tokenize.PunktSentenceTokenizer()
instructions_util._get_sentence_tokenizer = lambda: punkt
words = nltk.tokenize.NLTKWordTokenizer()
nltk.word_tokenize = lambda s: [w for sentence in punkt.tokenize(s) for w in words.tokenize(sentence)]

PLAIN = [
    "The quick brown fox jumps over the lazy dog. It was a sunny day! Was it not? Yes.",
    "the river is long and the water is cold in the winter, but we like to swim there with our friends.",
    "THE RIVER IS LONG AND DON'T ASK WHY. NASA's GO/NO-GO (ABC) e-MAIL, USA. a B-C 3D 12 \"QUOTED\" x",
    "* one\n* two\n* three\n",
    "- a\n- b\n\n  * c\n** not one\n*no\n-",
    "First line\nSection 1\nabc\nSection 2\ndef\nSECTION 3 ghi\nLast line",
    "A paragraph.\n***\nAnother one.\n***\nThe third.",
    "***\nA\n***\n\n***\nB",
    "one\n\ntwo words\n\n'Three, is the third.\n\nfour",
    "one\n\n\n\n\"two\" words\n\nthree",
    "one ****** two",
    "******one******one",
    "a\n******\nb\n******",
    "{\"a\": [1, 2, {\"b\": null}]}",
    "```json\n{\"a\": 1}\n```",
    "```\n[1, 2\n```",
    "  \"All of this is quoted, isn't it?\"  ",
    "<<A title>>\nand text. P.S. do not forget",
    "<<  >> text <<\n>> P. P.S. a",
    "Dear [name], I live at [address] in [city\nname]. []",
    "This is *highlighted* and **this too** and * * and ***.",
    "*a* b *c* d **e**",
    "My answer is yes.",
    "I think My answer is maybe. Not sure",
    "Is there anything else I can help with?",
    "It ends so: is there ANYTHING else I can help with?\"",
    "Write a poem about the sea. Here it is: blue, blue, blue.",
    "write a POEM about the sea! No.",
    "Keyword: banana, Bananas and BANANA bread. Apples grow on trees.",
    "Hmm... well... Wait!!! What?! Version 2.0 is out. See p. 4 (or 5.) \"Really?\" he said. 1. One 2. two",
    "J. Smith met A. b. and said 3. is a number. Then 4. Next",
    "x",
    "?!",
    "Ends with a quote. \"So.\"",
    "\n\n  Leading and trailing blank lines.  \n\n",
    "Sure! Here is it:\nno commas in this line\nHope this helps, bye",
    "*the title*\nno commas here\n*end, really*",
    "p.p.s the last\nP.P.S. more",
    "Caf\u00e9 na\u00efve \u00dcBER \u00c9T\u00c9 \u0394\u0395\u039d \u2018QUOTE\u2019 \u201cDOUBLE\u201d \u2026 END",
    "A,B;C:D 1,000 10:30 I'M WE'LL THEY'VE IT'S O'CLOCK D'ARTAGNAN CAN'T",
]
LANGUAGES = [
    "El perro come en la casa de mi hermano y despu\u00e9s duerme porque est\u00e1 muy cansado de todo el d\u00eda.",
    "O cachorro come na casa do meu irm\u00e3o e depois dorme porque n\u00e3o tem mais nada para fazer, como voc\u00ea sabe.",
    "Le chien mange dans la maison de mon fr\u00e8re et il dort parce qu'il est tr\u00e8s fatigu\u00e9 de la journ\u00e9e avec nous.",
    "Der Hund isst im Haus meines Bruders und schl\u00e4ft danach, weil er nach dem langen Tag sehr m\u00fcde ist.",
    "Il cane mangia nella casa di mio fratello e poi dorme perch\u00e9 \u00e8 molto stanco della giornata con gli amici.",
    "Pies je w domu mojego brata, a potem \u015bpi, poniewa\u017c jest bardzo zm\u0119czony i nie ma co robi\u0107 przez ca\u0142y dzie\u0144.",
    "Con ch\u00f3 \u0103n trong nh\u00e0 c\u1ee7a anh trai t\u00f4i v\u00e0 sau \u0111\u00f3 ng\u1ee7 v\u00ec n\u00f3 r\u1ea5t m\u1ec7t, nh\u01b0ng kh\u00f4ng \u0111\u01b0\u1ee3c \u0111i ch\u01a1i.",
    "Mbwa anakula katika nyumba ya ndugu yangu na baadaye analala kwa sababu amechoka sana na kazi za siku hiyo.",
    "Koira sy\u00f6 veljeni talossa ja nukkuu sen j\u00e4lkeen, koska se on hyvin v\u00e4synyt, mutta my\u00f6s iloinen kuin lapsi.",
    "\u0421\u043e\u0431\u0430\u043a\u0430 \u0435\u0441\u0442 \u0432 \u0434\u043e\u043c\u0435 \u043c\u043e\u0435\u0433\u043e \u0431\u0440\u0430\u0442\u0430, \u0430 \u043f\u043e\u0442\u043e\u043c \u0441\u043f\u0438\u0442, \u043f\u043e\u0442\u043e\u043c\u0443 \u0447\u0442\u043e \u043e\u043d\u0430 \u043e\u0447\u0435\u043d\u044c \u0443\u0441\u0442\u0430\u043b\u0430 \u0438 \u043d\u0435 \u0445\u043e\u0447\u0435\u0442 \u0431\u044b\u0442\u044c \u043e\u0434\u043d\u0430.",
    "\u0421\u043e\u0431\u0430\u043a\u0430 \u0457\u0441\u0442\u044c \u0443 \u0431\u0443\u0434\u0438\u043d\u043a\u0443 \u043c\u043e\u0433\u043e \u0431\u0440\u0430\u0442\u0430, \u0430 \u043f\u043e\u0442\u0456\u043c \u0441\u043f\u0438\u0442\u044c, \u0442\u043e\u043c\u0443 \u0449\u043e \u0434\u0443\u0436\u0435 \u0432\u0442\u043e\u043c\u0438\u043b\u0430\u0441\u044f \u0437\u0430 \u0446\u0456\u043b\u0438\u0439 \u0434\u0435\u043d\u044c.",
    "\u041a\u0443\u0447\u0435\u0442\u043e \u044f\u0434\u0435 \u0432 \u043a\u044a\u0449\u0430\u0442\u0430 \u043d\u0430 \u0431\u0440\u0430\u0442 \u043c\u0438 \u0438 \u0441\u043b\u0435\u0434 \u0442\u043e\u0432\u0430 \u0441\u043f\u0438, \u0437\u0430\u0449\u043e\u0442\u043e \u0435 \u043c\u043d\u043e\u0433\u043e \u0443\u043c\u043e\u0440\u0435\u043d\u043e \u043e\u0442 \u0434\u044a\u043b\u0433\u0438\u044f \u0434\u0435\u043d.",
    "\u064a\u0623\u0643\u0644 \u0627\u0644\u0643\u0644\u0628 \u0641\u064a \u0628\u064a\u062a \u0623\u062e\u064a \u062b\u0645 \u064a\u0646\u0627\u0645 \u0644\u0623\u0646\u0647 \u0645\u062a\u0639\u0628 \u062c\u062f\u0627 \u0628\u0639\u062f \u064a\u0648\u0645 \u0637\u0648\u064a\u0644 \u0645\u0646 \u0627\u0644\u0639\u0645\u0644.",
    "\u0633\u06af \u062f\u0631 \u062e\u0627\u0646\u0647 \u0628\u0631\u0627\u062f\u0631\u0645 \u063a\u0630\u0627 \u0645\u06cc\u200c\u062e\u0648\u0631\u062f \u0648 \u0628\u0639\u062f \u0645\u06cc\u200c\u062e\u0648\u0627\u0628\u062f \u0686\u0648\u0646 \u067e\u0633 \u0627\u0632 \u06cc\u06a9 \u0631\u0648\u0632 \u0637\u0648\u0644\u0627\u0646\u06cc \u062e\u0633\u062a\u0647 \u0627\u0633\u062a.",
    "\u06a9\u062a\u0627 \u0645\u06cc\u0631\u06d2 \u0628\u06be\u0627\u0626\u06cc \u06a9\u06d2 \u06af\u06be\u0631 \u0645\u06cc\u06ba \u06a9\u06be\u0627\u0646\u0627 \u06a9\u06be\u0627\u062a\u0627 \u06c1\u06d2 \u0627\u0648\u0631 \u067e\u06be\u0631 \u0633\u0648 \u062c\u0627\u062a\u0627 \u06c1\u06d2 \u06a9\u06cc\u0648\u0646\u06a9\u06c1 \u0648\u06c1 \u0628\u06c1\u062a \u062a\u06be\u06a9\u0627 \u06c1\u0648\u0627 \u06c1\u06d2\u06d4",
    "\u0915\u0941\u0924\u094d\u0924\u093e \u092e\u0947\u0930\u0947 \u092d\u093e\u0908 \u0915\u0947 \u0918\u0930 \u092e\u0947\u0902 \u0916\u093e\u0924\u093e \u0939\u0948 \u0914\u0930 \u092b\u093f\u0930 \u0938\u094b \u091c\u093e\u0924\u093e \u0939\u0948 \u0915\u094d\u092f\u094b\u0902\u0915\u093f \u0935\u0939 \u092c\u0939\u0941\u0924 \u0925\u0915 \u0917\u092f\u093e \u0939\u0948\u0964",
    "\u0915\u0941\u0924\u094d\u0930\u093e \u092e\u093e\u091d\u094d\u092f\u093e \u092d\u093e\u0935\u093e\u091a\u094d\u092f\u093e \u0918\u0930\u0940 \u091c\u0947\u0935\u0924\u094b \u0906\u0923\u093f \u0928\u0902\u0924\u0930 \u091d\u094b\u092a\u0924\u094b, \u0915\u093e\u0930\u0923 \u0924\u094b \u0916\u0942\u092a \u0925\u0915\u0932\u093e \u0906\u0939\u0947.",
    "\u0915\u0941\u0915\u0941\u0930 \u092e\u0947\u0930\u094b \u0926\u093e\u091c\u0941\u0915\u094b \u0918\u0930\u092e\u093e \u0916\u093e\u0928\u094d\u091b \u0930 \u0924\u094d\u092f\u0938\u092a\u091b\u093f \u0938\u0941\u0924\u094d\u091b \u0915\u093f\u0928\u092d\u0928\u0947 \u0924\u094d\u092f\u094b \u0927\u0947\u0930\u0948 \u0925\u0915\u0947\u0915\u094b \u091b\u0964",
    "\u72ac\u306f\u5144\u306e\u5bb6\u3067\u98df\u3079\u3066\u3001\u305d\u308c\u304b\u3089\u7720\u308a\u307e\u3059\u3002\u9577\u3044\u4e00\u65e5\u306e\u5f8c\u3067\u3068\u3066\u3082\u75b2\u308c\u3066\u3044\u307e\u3059\u3002",
    "\uac1c\ub294 \ud615\uc758 \uc9d1\uc5d0\uc11c \ubc25\uc744 \uba39\uace0 \ub098\uc11c \uc7a0\uc744 \uc7a1\ub2c8\ub2e4. \ud558\ub8e8\uac00 \uae38\uc5b4\uc11c \ub9e4\uc6b0 \ud53c\uace4\ud569\ub2c8\ub2e4.",
    "\u0e2a\u0e38\u0e19\u0e31\u0e02\u0e01\u0e34\u0e19\u0e02\u0e49\u0e32\u0e27\u0e17\u0e35\u0e48\u0e1a\u0e49\u0e32\u0e19\u0e02\u0e2d\u0e07\u0e1e\u0e35\u0e48\u0e0a\u0e32\u0e22\u0e41\u0e25\u0e49\u0e27\u0e01\u0e47\u0e19\u0e2d\u0e19\u0e2b\u0e25\u0e31\u0e1a",
    "\u05d4\u05db\u05dc\u05d1 \u05d0\u05d5\u05db\u05dc \u05d1\u05d1\u05d9\u05ea \u05e9\u05dc \u05d0\u05d7\u05d9 \u05d5\u05d0\u05d7\u05e8 \u05db\u05da \u05d9\u05e9\u05df \u05db\u05d9 \u05d4\u05d5\u05d0 \u05e2\u05d9\u05d9\u05e3 \u05de\u05d0\u05d5\u05d3.",
    "\u0995\u09c1\u0995\u09c1\u09b0 \u0986\u09ae\u09be\u09b0 \u09ad\u09be\u0987\u09af\u09bc\u09c7\u09b0 \u09ac\u09be\u09a1\u09bc\u09bf\u09a4\u09c7 \u0996\u09be\u09af\u09bc \u098f\u09ac\u0982 \u09a4\u09be\u09b0\u09aa\u09b0 \u0998\u09c1\u09ae\u09be\u09af\u09bc\u0964",
    "\u0ba8\u0bbe\u0baf\u0bcd \u0b8e\u0ba9\u0bcd \u0b9a\u0b95\u0bcb\u0ba4\u0bb0\u0ba9\u0bbf\u0ba9\u0bcd \u0bb5\u0bc0\u0b9f\u0bcd\u0b9f\u0bbf\u0bb2\u0bcd \u0b9a\u0bbe\u0baa\u0bcd\u0baa\u0bbf\u0b9f\u0bc1\u0b95\u0bbf\u0bb1\u0ba4\u0bc1.",
    "De hond eet in het huis van mijn broer en daarna slaapt hij, want hij is heel moe van de lange dag.",
    "The dog eats in the house of my brother and then it sleeps because it is very tired after a long day with us.",
]
COMPARE = ["less than", "at least"]


def grid(**choices):
    return [dict(zip(choices, v)) for v in itertools.product(*choices.values())]


CASES = {
    "keywords:existence": grid(keywords=[["banana"], ["Apples", "bread"], ["sea", "no"], ["a.c"]]),
    "keywords:frequency": grid(keyword=["banana", "blue "], frequency=[1, 3], relation=COMPARE),
    "keywords:forbidden_words": grid(forbidden_words=[["bananas"], ["no", "x"], ["he"]]),
    "keywords:letter_frequency": grid(letter=["a", "Q"], let_frequency=[1, 4], let_relation=COMPARE),
    "length_constraints:number_sentences": grid(num_sentences=[1, 2, 3, 4, 5, 6, 8], relation=COMPARE[1:])
    + grid(num_sentences=[3], relation=COMPARE[:1]),
    "length_constraints:number_paragraphs": grid(num_paragraphs=[1, 2, 3]),
    "length_constraints:number_words": grid(num_words=[2, 5, 12, 16], relation=COMPARE),
    "length_constraints:nth_paragraph_first_word": [
        dict(num_paragraphs=4, nth_paragraph=3, first_word="three"),
        dict(num_paragraphs=3, nth_paragraph=3, first_word="two"),
        dict(num_paragraphs=4, nth_paragraph=2, first_word="TWO"),
        dict(num_paragraphs=1, nth_paragraph=1, first_word="the"),
    ],
    "detectable_content:number_placeholders": grid(num_placeholders=[1, 2, 3]),
    "detectable_content:postscript": grid(postscript_marker=["P.S.", "P.P.S", "Hope"]),
    "detectable_format:number_bullet_lists": grid(num_bullets=[1, 2, 3, 4]),
    "detectable_format:constrained_response": [{}],
    "detectable_format:number_highlighted_sections": grid(num_highlights=[1, 2, 3, 4, 5]),
    "detectable_format:multiple_sections": grid(section_spliter=["Section", "SECTION "], num_sections=[1, 2]),
    "detectable_format:json_format": [{}],
    "detectable_format:title": [{}],
    "combination:two_responses": [{}],
    "combination:repeat_prompt": grid(prompt_to_repeat=["Write a poem about the sea", "x"]),
    "startend:end_checker": grid(end_phrase=["Is there anything else I can help with?", " yes."]),
    "startend:quotation": [{}],
    "change_case:capital_word_frequency": grid(capital_frequency=[1, 2, 5, 9, 13, 16], capital_relation=COMPARE[1:])
    + grid(capital_frequency=[2], capital_relation=COMPARE[:1]),
    "punctuation:no_comma": [{}],
}
CODES = "es pt fr de it pl vi sw fi ru uk bg ar fa ur hi mr ne ja ko th he bn ta en".split()


def verdict(name, kwargs, answer):
    inp = utils.InputExample(key=0, instruction_id_list=[name], prompt="", kwargs=[kwargs])
    strict = utils.test_instruction_following_strict(inp, answer).follow_all_instructions
    loose = utils.test_instruction_following_loose(inp, answer).follow_all_instructions
    return "0LBS"[2 * strict + loose]  # no, loosely only, (never) strictly only, strictly


def rows(name, all_kwargs, answers):
    for kwargs in all_kwargs:
        yield {"id": name, "kwargs": kwargs, "verdicts": "".join(verdict(name, kwargs, a) for a in answers)}


plain = [r for name, kwargs in CASES.items() for r in rows(name, kwargs, PLAIN)]
english = [{}]
language = list(rows("language:response_language", grid(language=CODES), LANGUAGES))
language += rows("change_case:english_lowercase", english, [s.lower() for s in LANGUAGES])
out = {"groups": [{"answers": PLAIN, "cases": plain}, {"answers": LANGUAGES, "cases": language[:-1]},
                  {"answers": [s.lower() for s in LANGUAGES], "cases": language[-1:]}]}
path = pathlib.Path(__file__).parent.parent / "golden/ifeval.json"
path.write_text(json.dumps(out, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
print(sum(len(c["verdicts"]) for g in out["groups"] for c in g["cases"]), "verdicts")
