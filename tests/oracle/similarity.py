"""BLEU of sacrebleu and ROUGE of rouge_score over texts that are hard to cut, for tests/eval/test_similarity.c:
python similarity.py > ../golden/eval/similarity.json (sacrebleu 2, rouge_score 0.1.2)"""
import json
import random

import sacrebleu
from rouge_score import rouge_scorer

PARTS = ["the", "cat", "sat", "on", "The", "mat", ".", ",", "3.5", "1,000", "-", "x-ray", "5-6", "U.S.", "don't", "&amp;",
         "&quot;", "&lt;b&gt;", "<skipped>", "caf\u00e9", "\u00dcber", "\u4f60\u597d", "\u212aelvin", "\u0130stanbul", "a.b",
         "(", ")", "!", "?", "/", "$", "'", "\"", "\u2003", "\u00a0", "\n", "-\n", "...", "a_b", "e,\u00e9", ".\u00e9", "{", "^"]


def text(rng, n):
    return "".join(rng.choice(PARTS) + rng.choice(["", " ", " ", " "]) for _ in range(n))


def similar(rng, s):
    words = s.split(" ")
    for _ in range(rng.randrange(4)):
        words.insert(rng.randrange(len(words) + 1), rng.choice(PARTS))
    return " ".join(w for w in words if rng.random() > 0.15)


def corpus(rng, n, refs, length):
    docs = []
    for _ in range(n):
        targets = [text(rng, rng.randrange(length))]
        targets += [similar(rng, targets[0]) for _ in range(refs - 1)]
        docs.append(dict(answer=similar(rng, targets[0]), targets=targets))
    score = sacrebleu.corpus_bleu([d["answer"] for d in docs],
                                  [[d["targets"][k] for d in docs] for k in range(refs)])
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
    for d in docs:
        each = [scorer.score(t, d["answer"]) for t in d["targets"]]
        d["rouge"] = [max(s[k].fmeasure for s in each) for k in ("rouge1", "rouge2", "rougeL")]
    return dict(docs=docs, bleu=score.score)


rng = random.Random(4)
cases = [corpus(rng, 12, 1, 40), corpus(rng, 9, 3, 30), corpus(rng, 1, 1, 9), corpus(rng, 4, 2, 3),
         corpus(rng, 2, 1, 6)]
for answer, target in [("", "a b"), ("a b", ""), ("one two", "three four"), ("a", "a"), ("a b c d e", "a b c x e")]:
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False).score(target, answer)
    cases.append(dict(docs=[dict(answer=answer, targets=[target], rouge=[s.fmeasure for s in scorer.values()])],
                      bleu=sacrebleu.corpus_bleu([answer], [[target]]).score))
print(json.dumps(cases))
