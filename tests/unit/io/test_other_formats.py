"""Files of other formats: the error names the format and the function that reads it."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
from nnc.errors import FileFormatError


def archive(path: Path, *names: str) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(name, "1")


def write_npy(path: Path) -> None:
    with open(path, "wb") as file:
        np.save(file, np.ones(3))


def write_npz(path: Path) -> None:
    with open(path, "wb") as file:
        np.savez(file, a=np.ones(3), b=np.zeros(2))


FORMATS: list[tuple[str, Callable[[Path], Any], str, str]] = [
    ("npy", write_npy, "a file of numpy.save", r"read it with np\.load; nnc\.numpy\.asarray"),
    ("npz", write_npz, "a file of numpy.savez", r"read it with np\.load; dict\(\)"),
    ("torch", lambda path: archive(path, "m/data.pkl", "m/data/0"), "a file of torch.save", r".*nnc\.nn\.load_torch\(model"),
    ("pickle", lambda path: path.write_bytes(pickle.dumps({"a": 1})), "a pickle", r".*torch\.load"),
    ("zip", lambda path: archive(path, "model.safetensors"), "a zip archive", "extract it"),
    ("cut zip", lambda path: path.write_bytes(b"PK\x03\x04" + bytes(20)), "a zip archive", "extract it"),
    ("HDF5", lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(90)), "an HDF5 file", "read it with h5py"),
    ("GGUF", lambda path: path.write_bytes(b"GGUF\x03\0\0\0" + bytes(90)), "a GGUF file", "convert it to safetensors"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "write", "title", "fix"), FORMATS, ids=[kind for kind, *_ in FORMATS])
def test_a_file_of_another_format_is_named(
    tmp_path: Path, kind: str, write: Callable[[Path], Any], title: str, fix: str
) -> None:
    path = tmp_path / "model"
    write(path)
    with pytest.raises(FileFormatError, match=rf"model is {title}.*reads safetensors files(.|\n)*Fix: {fix}"):
        nnc.io.load(path)


def test_other_bytes_are_no_whole_safetensors_file(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"\xff" * 64)
    with pytest.raises(FileFormatError, match=r"no whole safetensors file(.|\n)*Fix: copy or download it again"):
        nnc.io.load(path)
