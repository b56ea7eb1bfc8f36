"""Makes tests/golden/io: files written by the safetensors and numpy packages, read by tests/io.

    python tests/oracle/make_io_fixture.py tests/golden/io

Versions used for the committed files: see tests/oracle/requirements.txt.
"""

import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import save_file


def main(out: pathlib.Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    tensors = {
        "f32": torch.arange(6, dtype=torch.float32).reshape(2, 3) / 4,
        "bf16": torch.tensor([1.0, -2.5, 3.140625], dtype=torch.bfloat16),
        "f16": torch.tensor([0.5, 65504.0], dtype=torch.float16),
        "f64": torch.tensor([[[1e300]]], dtype=torch.float64),
        "i32": torch.tensor([-7, 2**31 - 1], dtype=torch.int32),
        "i64": torch.tensor([-(2**63), 5], dtype=torch.int64),
        "u8": torch.tensor([0, 127, 255], dtype=torch.uint8),
        "bool": torch.tensor([True, False, True]),
        "scalar": torch.tensor(42.0),
        "empty": torch.zeros(0, 4),
        "naïve.名": torch.tensor([1.0]),
    }
    save_file(tensors, out / "python.safetensors", metadata={"format": "pt", "made by": "python"})
    np.save(out / "ids_i32.npy", np.arange(10, dtype=np.int32).reshape(2, 5))
    np.save(out / "ids_i64.npy", np.arange(6, dtype=np.int64).reshape(1, 6) - 3)
    with open(out / "ids_v2.npy", "wb") as f:
        np.lib.format.write_array(f, np.array([7, 8, 9], dtype=np.int32), version=(2, 0))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
