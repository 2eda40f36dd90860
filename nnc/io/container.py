"""Safetensors files: a header of JSON, and the bytes of the tensors behind it.

    file    [ bytes of the header: 8 | header, padded with spaces to a multiple of 8 | tensors, wide dtypes first ]

The format has no checksum, so nnc adds one to the metadata, which other programs pass over: eight hexadecimal digits named `CHECK`.
It is the CRC-32 of the header, in which these digits are zeros, and of the sums of the data: of each tensor, filled up with zeros,
the sum of the 64-bit words of every 64 KiB. To sum is six times as fast as a CRC. Any changed byte changes the checksum.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError, safe_open

from nnc import dtypes
from nnc.errors import FileFormatError, user_error

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
    """The entries of the tensors, the texts beside them, and the bytes of the header.

    Raises:
        FileFormatError: the header is damaged, or does not fit the file.
    """
    try:
        with safe_open(source, framework="numpy"):
            pass  # the library has checked the header, and that the offsets cover the file
    except SafetensorError as error:
        raise damaged(source, str(error)) from None
    with open(source, "rb") as file:
        header = file.read(int.from_bytes(file.read(_WORD), "little"))
    entries = json.loads(header)
    metadata = entries.pop(METADATA, None) or {}
    return entries, metadata, header


def read(source: Path) -> tuple[dict[str, str], Iterator[tuple[str, NDArray]]]:
    """The texts of a file, and its tensors by name, each of which is read when it is asked for.

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
                raise user_error(
                    FileFormatError, "nnc.io.load",
                    f"tensor {name} of {source} has dtype {entry['dtype']}, which nnc does not have.",
                    fix="convert it with the program that wrote it.",
                )  # fmt: skip
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
    """The error for a file that is not as it was written."""
    return user_error(
        FileFormatError, "nnc.io.load", f"{source} is no whole safetensors file: {reason}.",
        fix=f"copy or download it again; nnc.io.save never leaves a half-written file{or_else}.",
    )  # fmt: skip


def _check_text(digits: str) -> bytes:
    """The header's entry for the checksum."""
    return f'"{CHECK}":"{digits}"'.encode()


def _sums(data: NDArray) -> bytes:
    """The sum of the words of each block."""
    whole = len(data) // _BLOCK * _BLOCK
    rest = np.zeros(_BLOCK, np.uint8)
    rest[: len(data) - whole] = data[whole:]
    blocks = [np.add.reduce(part.view("<u8").reshape(-1, _BLOCK // 8), axis=1) for part in (data[:whole], rest)]
    return b"".join(sums.astype("<u8").tobytes() for sums in blocks)
