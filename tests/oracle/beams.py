"""Beam search and repeated n-grams of transformers' generate on golden models, for
tests/interchange/test_beam.c: python beams.py > ../golden/beams.json
and, of models with an encoder: python beams.py encoder > ../golden/beams_encoder.json

Each case has a prompt, options, and all beams with their scores; those without beams are greedy.
"""
import json
import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden")
ENCODERS = ["t5-relu-tied", "t5-gated-untied"]
NAMES = ["llama-gqa-tied", "gpt2-tanh-tied", "qwen3-tied", "gemma2", "mixtral"]
OPTIONS = [
    dict(num_beams=2),
    dict(num_beams=4, length_penalty=2.0),
    dict(num_beams=3, length_penalty=-1.0, early_stopping=True),
    dict(num_beams=4, early_stopping="never", no_repeat_ngram_size=2),
    dict(num_beams=5, length_penalty=0.0, min_new_tokens=9, no_repeat_ngram_size=1),
    dict(num_beams=3, early_stopping=True, repetition_penalty=1.3, no_repeat_ngram_size=3),
    dict(num_beams=1, no_repeat_ngram_size=2),
    dict(num_beams=1, no_repeat_ngram_size=3, repetition_penalty=1.1, min_new_tokens=5),
]


def case(model, name, options, prompt, end):
    out = model.generate(torch.tensor([prompt]), max_new_tokens=14, do_sample=False, eos_token_id=end,
                         pad_token_id=end[0], num_return_sequences=options["num_beams"],
                         return_dict_in_generate=True, output_scores=True, **options)
    before = 1 if model.config.is_encoder_decoder else len(prompt)
    texts = [row[before:] for row in out.sequences.tolist()]
    for t in texts:
        for i, token in enumerate(t):
            if token in end:
                del t[i:]
                break
    scores = out.sequences_scores.tolist() if options["num_beams"] > 1 else []
    return dict(model=name, prompt=prompt, end=end, options=options, texts=texts, scores=scores)


def main():
    torch.manual_seed(5)
    cases = []
    encoder = sys.argv[1:] == ["encoder"]
    for name in ENCODERS if encoder else NAMES:
        if encoder:
            model = AutoModelForSeq2SeqLM.from_pretrained(os.path.join(MODELS, "encoder", name)).eval()
        else:
            model = AutoModelForCausalLM.from_pretrained(os.path.join(MODELS, "models", name),
                                                         experts_implementation="eager").eval()
        vocab = model.config.vocab_size
        if encoder:
            model.generation_config.eos_token_id = None
            model.generation_config.use_cache = False  # transformers 5 makes caches of as many layers as the encoder has
        for i, options in enumerate(OPTIONS):
            prompt = torch.randint(0, vocab, (2 + 4 * (i % 3),)).tolist()
            greedy = model.generate(torch.tensor([prompt]), max_new_tokens=14, do_sample=False,
                                    eos_token_id=None, pad_token_id=0)[0, 1 if encoder else len(prompt):].tolist()
            # ends that come: a token that the greedy text has, and another
            end = [greedy[7], (greedy[7] + 1 + i) % vocab][: 1 + i % 2]
            cases.append(case(model, name, options, prompt, end))
    json.dump(cases, sys.stdout)


main()
