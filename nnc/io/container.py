"""Safetensors files: a header of JSON, and the bytes of the tensors behind it.

    file    [ bytes of the header: 8 | header, padded with spaces to a multiple of 8 | tensors, wide dtypes first ]

The format has no checksum, so nnc adds one to the metadata, which other programs pass over: eight hexadecimal digits named `CHECK`.
It is the CRC-32 of the header, in which these digits are zeros, and of the sums of the data: of each tensor, filled up with zeros,
the sum of the 64-bit words of every 64 KiB. To sum is six times as fast as a CRC. Any changed byte changes the checksum.
"""

from __future__ import annotations

import json
import math
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError, safe_open

from nnc.base import dtypes
from nnc.errors import FileFormatError, user_error
from nnc.errors.errors import shorten
from nnc.graph.spec import MOST_AXES

NDArray = np.ndarray[Any, Any]
Entries = dict[str, dict[str, Any]]

METADATA = "__metadata__"  # the header's key that is no tensor
CHECK = "nnc.check"
_NO_DIGITS = "00000000"
_WORD = 8  # bytes; the header is padded to a multiple of it
_BLOCK = 1 << 16  # bytes that are summed
DTYPES = {
    "BOOL": dtypes.bool_, "I8": dtypes.int8, "I16": dtypes.int16, "I32": dtypes.int32, "I64": dtypes.int64,
    "U8": dtypes.uint8, "U16": dtypes.uint16, "U32": dtypes.uint32, "U64": dtypes.uint64, "F16": dtypes.float16,
    "BF16": dtypes.bfloat16, "F32": dtypes.float32, "F64": dtypes.float64, "C64": dtypes.complex64,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


_MAGIC = {  # first bytes of other formats
    b"\x93NUMPY": "npy", b"PK\x03\x04": "zip", b"PK\x05\x06": "zip", **{bytes((0x80, n)): "pickle" for n in range(2, 6)},
    b"\x89HDF\r\n\x1a\n": "hdf5", b"GGUF": "gguf",
}  # fmt: skip
_TORCH = (
    "read it with torch.load(path, weights_only=True), and give the state_dict to nnc.nn.load_torch(model, state_dict); "
    "safetensors.torch.save_file writes files that nnc.io.load reads."
)
_FORMATS = {  # names and remedies
    "npy": ("a file of numpy.save", "read it with np.load; nnc.numpy.asarray makes an array of nnc."),
    "npz": ("a file of numpy.savez", "read it with np.load; dict() of the result is a tree of arrays."),
    "torch": ("a file of torch.save", _TORCH),
    "pickle": (
        "a pickle, as older versions of torch.save write, too",
        f"if it is PyTorch's, {_TORCH} Other pickles may run code: load only those whose author you trust.",
    ),
    "zip": ("a zip archive", "extract it, and load the safetensors file in it."),
    "hdf5": ("an HDF5 file", "read it with h5py, and pass its arrays as NumPy's."),
    "gguf": ("a GGUF file", "convert it to safetensors, or download the safetensors file of the model."),
}


def write(file: BinaryIO, arrays: Mapping[str, NDArray], metadata: Mapping[str, str]) -> None:
    """Writes contiguous arrays by name, and texts beside them."""
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))  # so that all are aligned
    entries: dict[str, Any] = {METADATA: {**metadata, CHECK: _NO_DIGITS}}
    end = 0
    for name in names:
        array = arrays[name]
        begin, end = end, end + array.nbytes
        entries[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    header = text.ljust(-(-len(text) // _WORD) * _WORD)
    data = [arrays[name].reshape(-1).view(np.uint8) for name in names]
    check = zlib.crc32(header)
    for part in data:
        check = zlib.crc32(_sums(part), check)
    file.write(len(header).to_bytes(_WORD, "little"))
    file.write(header.replace(_check_text(_NO_DIGITS), _check_text(f"{check:08x}"), 1))
    for part in data:
        file.write(part.data)


def read_header(source: Path) -> tuple[Entries, dict[str, str], bytes]:
    """Returns the entries of the tensors, the texts beside them, and the bytes of the header.

    Raises:
        FileFormatError: the header is damaged, or does not fit the file.
    """
    try:
        with safe_open(source, framework="numpy"):
            pass  # the library has checked the header, and that the offsets cover the file
    except SafetensorError as error:
        raise _other_format(source) or damaged(source, str(error)) from None
    with open(source, "rb") as file:
        header = file.read(int.from_bytes(file.read(_WORD), "little"))
    try:
        entries = json.loads(header)
        metadata = entries.pop(METADATA, None) or {}
    except (
        ValueError,
        RecursionError,
    ):  # Python refuses a header that the library takes, or the file has changed since
        raise damaged(source, "its header cannot be read") from None
    for name, entry in entries.items():
        if len(entry["shape"]) > MOST_AXES or math.prod(n for n in entry["shape"] if n) * _WORD > sys.maxsize:
            problem = f"tensor {shorten(name)} of {source} has shape {shorten(entry['shape'])}, which no array has."
            fix = f"split it with the program that wrote it: arrays have at most {MOST_AXES} axes."
            raise user_error(FileFormatError, "nnc.io.load", problem, fix=fix)
    return entries, metadata, header


def read(source: Path) -> tuple[dict[str, str], Iterator[tuple[str, NDArray]]]:
    """Returns the texts of a file, and its tensors by name; a tensor is read when it is asked for.

    Raises:
        FileFormatError: the file is damaged, which the end of the tensors tells, or has a dtype that nnc does not have.
    """
    entries, metadata, header = read_header(source)
    return metadata, _tensors(source, entries, metadata.get(CHECK), header)


def _tensors(source: Path, entries: Entries, digits: str | None, header: bytes) -> Iterator[tuple[str, NDArray]]:
    check = zlib.crc32(header.replace(_check_text(digits or ""), _check_text(_NO_DIGITS), 1))
    with open(source, "rb") as file:
        for name, entry in entries.items():
            if entry["dtype"] not in DTYPES:
                problem = f"tensor {name} of {source} has dtype {entry['dtype']}, which nnc does not have."
                fix = "convert it with the program that wrote it."
                raise user_error(FileFormatError, "nnc.io.load", problem, fix=fix)
            begin, end = entry["data_offsets"]
            file.seek(_WORD + len(header) + begin)
            data = np.fromfile(file, np.uint8, end - begin)
            if digits is not None:
                check = zlib.crc32(_sums(data), check)
            yield name, data.view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
    if digits is not None and digits != f"{check:08x}":
        or_else = f"; if another program changed it, have that remove {CHECK} from its metadata"
        raise damaged(source, f"its checksum is {check:08x}, not {digits}", or_else)


def damaged(source: Path, reason: str, or_else: str = "") -> FileFormatError:
    """Returns the error for a file that is not as it was written."""
    fix = f"copy or download it again; nnc.io.save never leaves a half-written file{or_else}."
    return user_error(FileFormatError, "nnc.io.load", f"{source} is no whole safetensors file: {reason}.", fix=fix)


def _other_format(source: Path) -> FileFormatError | None:
    """Returns the error for a file of another known format, which its first bytes tell; None for other files."""
    with open(source, "rb") as file:
        first = file.read(8)
    kind = next((kind for magic, kind in _MAGIC.items() if first.startswith(magic)), None)
    if kind == "zip":
        kind = _kind_of_zip(source)
    if kind is None:
        return None
    title, fix = _FORMATS[kind]
    return user_error(FileFormatError, "nnc.io.load", f"{source} is {title}; nnc.io reads safetensors files.", fix=fix)


def _kind_of_zip(source: Path) -> str:
    """Returns the format of a file that begins as an archive does: NumPy's or PyTorch's, by the names in it."""
    try:
        with zipfile.ZipFile(source) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, NotImplementedError):
        return "zip"
    if any(name.endswith("data.pkl") for name in names):
        return "torch"
    return "npz" if names and all(name.endswith(".npy") for name in names) else "zip"


def _check_text(digits: str) -> bytes:
    """Returns the header's entry for the checksum."""
    return f'"{CHECK}":"{digits}"'.encode()


def _sums(data: NDArray) -> bytes:
    """Returns the sum of the words of each block."""
    whole = len(data) // _BLOCK * _BLOCK
    rest = np.zeros(_BLOCK, np.uint8)
    rest[: len(data) - whole] = data[whole:]
    blocks = [np.add.reduce(part.view("<u8").reshape(-1, _BLOCK // 8), axis=1) for part in (data[:whole], rest)]
    return b"".join(sums.astype("<u8").tobytes() for sums in blocks)
