"""Golden models as GGUF files that llama.cpp's own converter writes, imported by athanor.

    python converted_by_llama_cpp.py LLAMA_CPP ATHANOR NAME...

LLAMA_CPP is its source tree (convert_hf_to_gguf.py, conversion/, gguf-py/). Golden models have no tokenizer,
so the converter's set_vocab is left out. Prints the largest difference of a tensor from the folder's, and
the keys of config.json that came back with another value. Needs torch, transformers and safetensors.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(1, sys.argv[1])
sys.path.insert(1, os.path.join(sys.argv[1], "gguf-py"))
import gguf  # noqa: E402
from conversion import ModelBase, ModelType, get_model_class  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

MODELS = pathlib.Path(__file__).parent.parent / "golden" / "models"
# what an import writes of its own, or leaves out where it is the usual value
WRITTEN_ANEW = {"architectures", "dtype", "transformers_version", "use_cache", "initializer_range",
                "bos_token_id", "eos_token_id", "pad_token_id", "pretraining_tp"}


def convert(folder, out):
    hparams = ModelBase.load_hparams(folder, False)
    model = get_model_class(hparams["architectures"][0])
    model.no_mtp = True  # what it calls the modules of multi-token prediction; the golden ones have none
    model.set_vocab = lambda self: self.gguf_writer.add_tokenizer_model("none")
    model(folder, gguf.LlamaFileType.ALL_F32, out).write()


def compare(athanor, name, tmp):
    folder, out, back = tmp / "hf", tmp / "m.gguf", tmp / "back"
    shutil.copytree(MODELS / name, folder)
    config = json.load(open(folder / "config.json"))
    if config["model_type"] == "deepseek_v3":  # as the published ones say
        config["scoring_func"] = "sigmoid"
        json.dump(config, open(folder / "config.json", "w"))
    convert(folder, out)
    made = subprocess.run([athanor, "import", out, "-o", back, "--json"], capture_output=True,
                          text=True)
    if made.returncode:
        return (made.stderr or made.stdout).strip()
    want, got = load_file(folder / "model.safetensors"), load_file(back / "model.safetensors")
    worst = max((float((got[k] - want[k]).abs().max()) for k in want if k in got), default=-1)
    missing = sorted(set(want) ^ set(got))
    a, b = (json.load(open(p / "config.json")) for p in (folder, back))
    changed = {k: (a.get(k), b.get(k)) for k in sorted(set(a) | set(b))
               if k not in WRITTEN_ANEW and a.get(k) != b.get(k)}
    return f"difference {worst:.2g}, on one side only {missing[:4]}, keys {changed}"


def main():
    for name in sys.argv[3:]:
        with tempfile.TemporaryDirectory() as tmp:
            print(f"{name}: {compare(sys.argv[2], name, pathlib.Path(tmp))}", flush=True)


if __name__ == "__main__":
    main()
