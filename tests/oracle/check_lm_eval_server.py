"""lm-evaluation-harness through a server, request by request, against its own transformers back end.

    check_lm_eval_server.py URL FOLDER [COUNT]      needs: pip install "lm-eval[api]" transformers torch

FOLDER is what the server serves. No data set is read: continuations of many lengths are cut from a text,
some of them what the model itself would write. The harness finds the server's tokenizer by itself
(tokenizer_backend=auto), so /tokenizer_info, /tokenize and /detokenize are used, too. Compared are the
log-likelihoods, whether a continuation is the greedy one, and greedy texts with stop strings; and chats.
"""
import random
import sys

from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI

url, folder = sys.argv[1].rstrip("/"), sys.argv[2]
count = int(sys.argv[3]) if len(sys.argv) > 3 else 100
peer = HFLM(pretrained=folder, dtype="float32", device="cpu", batch_size=8)
longest = peer.max_length
name = "served"
ours = LocalCompletionsAPI(
    base_url=url + "/v1/completions", model="", max_length=longest, num_concurrent=4, batch_size=4
)
assert ours.tokenizer_backend == "remote", ours.tokenizer_backend

random.seed(5)
words = open(__file__).read().split()


def some(least, most):
    """Words that leave room in the context: the two back ends cut longer texts at different places."""
    while True:
        at, n = random.randrange(len(words) - most), random.randrange(least, most)
        text = " ".join(words[at : at + n])
        if len(peer.tok_encode(text)) < longest // 2 - 20:
            return text


def instances(kind, arguments):
    return [Instance(request_type=kind, doc={}, arguments=a, idx=i) for i, a in enumerate(arguments)]


until = {"until": ["\n", " the"], "max_gen_toks": 12, "do_sample": False}
contexts = [some(1, 20) for _ in range(count)]
greedy = peer.generate_until(instances("generate_until", [(c, dict(until)) for c in contexts]), disable_tqdm=True)
mine = ours.generate_until(instances("generate_until", [(c, dict(until)) for c in contexts]), disable_tqdm=True)
differ = [(c, a, b) for c, a, b in zip(contexts, greedy, mine) if a != b]
print(f"generate_until: {count - len(differ)} of {count} texts are equal")

pairs = [(c, " " + some(1, 6)) for c in contexts]
pairs += [(c, g) for c, g in zip(contexts, greedy) if g][: count // 2]
pairs += [("", some(2, 9)) for _ in range(5)]
theirs = peer.loglikelihood(instances("loglikelihood", pairs), disable_tqdm=True)
got = ours.loglikelihood(instances("loglikelihood", pairs), disable_tqdm=True)
worst = max(abs(a[0] - b[0]) for a, b in zip(theirs, got))
same = sum(a[1] == b[1] for a, b in zip(theirs, got))
print(f"loglikelihood: {len(pairs)} items, greatest difference {worst:.2e}, is_greedy equal in {same},"
      f" true in {sum(g[1] for g in got)}")

rolling = [(some(8, 30),) for _ in range(4)]
a = peer.loglikelihood_rolling(instances("loglikelihood_rolling", rolling), disable_tqdm=True)
b = ours.loglikelihood_rolling(instances("loglikelihood_rolling", rolling), disable_tqdm=True)
far = max(abs(x - y) / abs(x) for x, y in zip(a, b))
print(f"loglikelihood_rolling: greatest relative difference {far:.2e}")

chat = LocalChatCompletion(base_url=url + "/v1/chat/completions", model="", num_concurrent=2)
talks = [chat.apply_chat_template([{"role": "user", "content": c}]) for c in contexts[:8]]
texts = chat.generate_until(instances("generate_until", [(t, dict(until)) for t in talks]), disable_tqdm=True)
rendered = [peer.apply_chat_template([{"role": "user", "content": c}]) for c in contexts[:8]]
want = peer.generate_until(instances("generate_until", [(t, dict(until)) for t in rendered]), disable_tqdm=True)
wrong = [(a, b) for a, b in zip(texts, want) if a != b]
print(f"chats: {len(talks) - len(wrong)} of {len(talks)} texts are equal")
for line in differ[:3] + wrong[:3]:
    print("  ", line)
sys.exit(bool(differ or wrong or worst > 1e-3 or same < len(pairs) or far > 1e-5))
