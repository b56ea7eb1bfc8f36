"""Writers of other programs' token files, for make_token_files.py and compare_token_files.py.

A corpus is a list of documents, each a list of ids without end-of-text. With checkouts of
NVIDIA/Megatron-LM and huggingface/datatrove their own writers are used, else the same bytes are
made here.
"""

import importlib.util
import pathlib
import struct
import sys
import types

import numpy as np

MEGATRON_CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


def ends_with_eos(docs, eos):
    return [list(d) + [eos] for d in docs]


def begins_with_eos(docs, eos):
    return [[eos] + list(d) for d in docs]


def flat(docs):
    return [t for d in docs for t in d]


def write_flat(path, docs, dtype):
    """nanoGPT (prepare.py: a numpy memmap) and OLMo (dolma: the same, named .npy)."""
    ids = np.array(flat(docs), dtype=dtype)
    m = np.memmap(path, dtype=dtype, mode="w+", shape=ids.shape)
    m[:] = ids
    m.flush()


def write_llmc(path, docs, dtype):
    """llm.c's dev/data/data_common.py."""
    ids = np.array(flat(docs), dtype=dtype)
    header = np.zeros(256, dtype=np.int32)
    header[:3] = (20240520, 1, len(ids)) if dtype == np.uint16 else (20240801, 7, len(ids))
    with open(path, "wb") as f:
        f.write(header.tobytes())
        f.write(ids.tobytes())


def write_llmc_eval(path):
    header = np.zeros(256, dtype=np.int32)
    header[:4] = (20240522, 1, 1, 18)
    with open(path, "wb") as f:
        f.write(header.tobytes())
        f.write(np.array([65535, 18, 0, 1, 1, 1, 5, 1, 6], dtype=np.uint16).tobytes())


def write_numpy(path, docs, dtype, version=None):
    with open(path, "wb") as f:
        np.lib.format.write_array(f, np.array(flat(docs), dtype=dtype), version=version)


def megatron_module(checkout):
    """indexed_dataset.py of a checkout, with what it imports beside numpy and torch left empty."""
    names = ["megatron", "megatron.core", "megatron.core.datasets", "megatron.core.msc_utils",
             "megatron.core.datasets.object_storage_utils", "megatron.core.utils"]
    for name in names:
        sys.modules[name] = types.ModuleType(name)
    storage = sys.modules["megatron.core.datasets.object_storage_utils"]
    for name in ["S3Config", "ObjectStorageConfig", "cache_index_file", "dataset_exists",
                 "get_index_cache_path", "get_object_storage_access", "is_object_storage_path",
                 "parse_s3_path"]:
        setattr(storage, name, None)

    class Feature:
        @staticmethod
        def is_enabled():
            return False

    sys.modules["megatron.core.msc_utils"].MultiStorageClientFeature = Feature
    sys.modules["megatron.core.msc_utils"].maybe_msc = types.SimpleNamespace(
        open=open, os=__import__("os"))
    sys.modules["megatron.core.utils"].log_single_rank = lambda *a, **k: None
    path = pathlib.Path(checkout) / "megatron/core/datasets/indexed_dataset.py"
    spec = importlib.util.spec_from_file_location("megatron.core.datasets.indexed_dataset", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_megatron(prefix, docs, dtype, pieces=1, modes=False, checkout=None):
    """Each document as `pieces` sequences; the document's end is its last sequence's."""
    dtype = np.dtype(dtype)
    cut = [np.array_split(np.array(d, dtype=dtype), pieces) for d in docs]
    if checkout:
        module = megatron_module(checkout)
        builder = module.IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype.type, multimodal=modes)
        for d in cut:
            lengths = [len(p) for p in d]
            builder.add_document(np.concatenate(d), lengths, [0] * pieces if modes else None)
        builder.finalize(f"{prefix}.idx")
        return
    lengths = np.array([len(p) for d in cut for p in d], dtype=np.int32)
    pointers = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)[:-1]]) * dtype.itemsize
    with open(f"{prefix}.bin", "wb") as f:
        f.write(np.array(flat(docs), dtype=dtype).tobytes())
    with open(f"{prefix}.idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QB", 1, MEGATRON_CODES[dtype.name]))
        f.write(struct.pack("<QQ", len(lengths), len(docs) + 1))
        f.write(lengths.tobytes() + pointers.astype(np.int64).tobytes())
        f.write((np.arange(len(docs) + 1, dtype=np.int64) * pieces).tobytes())
        if modes:
            f.write(np.zeros(len(lengths), dtype=np.int8).tobytes())


def datatrove_class(checkout):
    """TokenizedFile of a checkout, writing through plain files."""

    class Folder:
        def __init__(self, path):
            self.path = pathlib.Path(path)

        def open(self, name, mode="rb", **_):
            return open(self.path / name, mode)

    stubs = {
        "humanize": {"metric": lambda n, unit="": f"{n} {unit}"},
        "datatrove": {}, "datatrove.data": {"Document": None, "DocumentsPipeline": None},
        "datatrove.io": {"DataFolder": Folder, "DataFolderLike": object, "get_datafolder": Folder},
        "datatrove.utils": {}, "datatrove.utils.batching": {"batched": None},
        "datatrove.utils.logging": {"logger": None},
        "datatrove.utils.tokenization": {"PipelineStepWithTokenizer": object,
                                         "chunk_doc_ends": None},
    }
    for name, members in stubs.items():
        module = types.ModuleType(name)
        module.__dict__.update(members)
        sys.modules[name] = module
    path = pathlib.Path(checkout) / "src/datatrove/pipeline/tokens/tokenizer.py"
    spec = importlib.util.spec_from_file_location("datatrove_tokenizer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TokenizedFile


def write_nanotron(path, docs, width, tokenizer="gpt2", index=True, metadata=True, checkout=None):
    path = pathlib.Path(path)
    if checkout:
        f = datatrove_class(checkout)(path.parent, path.name, save_index=index, token_size=width,
                                      tokenizer_name_or_path=tokenizer,
                                      save_final_metadata=metadata)
        for d in docs:
            f.write(list(d), None)
        f.close()
        return
    ids = flat(docs)
    path.write_bytes(np.array(ids, dtype="<u2" if width == 2 else "<u4").tobytes())
    if index:
        ends = np.cumsum([len(d) for d in docs], dtype=np.uint64)
        pathlib.Path(f"{path}.index").write_bytes(ends.astype("<u8").tobytes())
    if metadata:
        pathlib.Path(f"{path}.metadata").write_text(
            f"{tokenizer}|{width}\n{len(ids)}\n{len(ids)} T")
