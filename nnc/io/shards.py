"""Checkpoints of several processes: a safetensors file of each rank, and an index that names them and holds the tree.

    model.safetensors                              the index: a line of JSON, and a line with its CRC-32
    model.safetensors.0f3a9c21.0-of-2.safetensors  of rank 0: its parts, and all values that every process holds whole
    model.safetensors.0f3a9c21.1-of-2.safetensors  of rank 1: its parts

The digits are drawn for each checkpoint, so that no file of the one before is touched until the new index has taken its place.
A part is a range of a vector of an `nnc.trace.core.parts.Sharded`, without the zeros that fill up the last one: all parts, one
behind the other, are the vector, for any number of ranks.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnc import tree
from nnc.base.files import Folder
from nnc.errors import ArgumentError, FileFormatError, user_error
from nnc.errors.errors import shorten
from nnc.io.container import CHECK, damaged, read, write
from nnc.io.layout import Layout
from nnc.trace.core.parts import Sharded, part_size

NDArray = np.ndarray[Any, Any]

_BEGIN = b'{"nnc.shards":'  # as the size of a header, which safetensors begins with, it would be absurd
_VERSION = 1
_SHARD = "nnc.shard"  # the key of a file's place in the checkpoint
_TOKEN = re.compile("[0-9a-f]{8}")
_MODE = 0o666


def sizes_of(value: Any, layout: Layout, ranks: int) -> dict[str, int]:
    """For each vector that is kept in parts, by its name, the elements of the whole.

    Raises:
        ArgumentError: a part is not of the size that it has on so many ranks.
    """
    sizes: list[int] = []
    for node in tree.flatten(value, lambda x: isinstance(x, Sharded))[0]:
        sizes += [node.size] * len(tree.leaves(node)) if isinstance(node, Sharded) else [0]
    leaves = [leaf for leaf in layout.leaves if not leaf.is_setting]
    found = {}
    for leaf, size in zip(leaves, sizes, strict=True):
        shape = tuple(np.shape(leaf.value)) if size and tree.is_array(leaf.value) else ()
        if shape and shape not in ((size,), (part_size(size, ranks),)):
            problem = (
                f"{leaf.name} has shape {shape}; a part of its {size} elements on {ranks} ranks has "
                f"{part_size(size, ranks)}."
            )
            fix = "save the state of a step over a mesh of one axis, with all processes."
            raise user_error(ArgumentError, "nnc.io.save", problem, fix=fix)
        if shape:
            found[leaf.name] = size
    return found


def own_part(arrays: Mapping[str, NDArray], sizes: Mapping[str, int], rank: int, ranks: int) -> dict[str, NDArray]:
    """Returns the arrays that a rank writes: its parts, and on rank 0 all arrays that are whole everywhere."""
    found = {}
    for name, data in arrays.items():
        if name in sizes:
            width = part_size(sizes[name], ranks)
            begin, end = min(rank * width, sizes[name]), min((rank + 1) * width, sizes[name])
            found[name] = data[begin:end] if len(data) == sizes[name] else data[: end - begin]
        elif not rank:
            found[name] = data
    return found


def shard_name(target: Path, token: str, rank: int, ranks: int) -> str:
    """Returns the name of a rank's file."""
    return f"{target.name}.{token}.{rank}-of-{ranks}.safetensors"


def write_shard(target: Path, token: str, rank: int, ranks: int, arrays: Mapping[str, NDArray]) -> None:
    """Writes a rank's file beside the index."""
    with Folder(str(target.parent), None).replacing(shard_name(target, token, rank, ranks), _MODE) as (file, _):
        write(file, arrays, {_SHARD: f"{token} {rank} {ranks}"})
        file.flush()
        os.fsync(file.fileno())
    _settle(target.parent)


def write_index(target: Path, token: str, ranks: int, texts: Mapping[str, str], sizes: Mapping[str, int]) -> None:
    """Writes the index when all files are there, then removes those of other checkpoints of this name."""
    entries = {"nnc.shards": _VERSION, "token": token, "ranks": ranks, "sizes": dict(sizes), "texts": dict(texts)}
    text = json.dumps(entries, separators=(",", ":")).encode()
    folder = Folder(str(target.parent), None)
    with folder.replacing(target.name, _MODE) as (file, _):
        file.write(text + f"\n{zlib.crc32(text):08x}\n".encode())
        file.flush()
        os.fsync(file.fileno())
    _settle(target.parent)
    shards = re.compile(re.escape(target.name) + r"\.([0-9a-f]{8})\.\d+-of-\d+\.safetensors")
    with contextlib.suppress(OSError):  # a folder whose files may not be listed, or removed
        folder.remove_left_over()
        for name in folder.names():
            match = shards.fullmatch(name)
            if match and match[1] != token:
                folder.remove(name)


def is_index(source: Path) -> bool:
    """Whether a file is the index of a checkpoint in several files."""
    with open(source, "rb") as file:
        return file.read(len(_BEGIN)) == _BEGIN


def read_index(source: Path) -> tuple[dict[str, str], Iterator[tuple[str, NDArray]]]:
    """Returns the texts of a checkpoint, and its tensors by name, whole: as `nnc.io.container.read` gives those of one file.

    Raises:
        FileFormatError: the index or one of the files is damaged or missing.
    """
    text, _, rest = source.read_bytes().partition(b"\n")
    if rest != f"{zlib.crc32(text):08x}\n".encode():
        raise damaged(source, "its checksum is another")
    entries = _parse(source, text)
    paths = list(_files(source, entries))
    return entries["texts"], _tensors(source, entries, paths)


def _parse(source: Path, text: bytes) -> dict[str, Any]:
    """Returns the entries of an index, each of its type.

    Raises:
        FileFormatError: they are not as `write_index` writes them.
    """
    try:
        entries: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError):
        raise damaged(source, "its index cannot be read") from None
    version = entries.get("nnc.shards")
    if version != _VERSION:
        problem = f"{source} has version {shorten(version)} of the format, this nnc reads {_VERSION}."
        fix = "update nnc, or save the checkpoint again with the nnc you have."
        raise user_error(FileFormatError, "nnc.io.load", problem, fix=fix)
    token, ranks, sizes, texts = (entries.get(key) for key in ("token", "ranks", "sizes", "texts"))
    is_sound = (
        isinstance(token, str)
        and _TOKEN.fullmatch(token)
        and type(ranks) is int
        and ranks > 0
        and isinstance(sizes, dict)
        and all(type(size) is int and size >= 0 for size in sizes.values())
        and isinstance(texts, dict)
        and all(isinstance(value, str) for value in texts.values())
    )
    if not is_sound:
        raise damaged(source, "its index names no files, or not the sizes of what is in them")
    return entries


def _files(source: Path, entries: Mapping[str, Any]) -> Iterator[Path]:
    """The files of all ranks, which lie beside the index. A cache of downloads may hold links to all of them in one other folder.

    Raises:
        FileFormatError: one is missing, no file, or lies elsewhere.
    """
    token, ranks = entries["token"], entries["ranks"]
    homes = {source.parent.resolve(), source.resolve().parent}
    for rank in range(ranks):
        path = source.with_name(shard_name(source, token, rank, ranks))
        if not path.is_file():
            problem = f"{path.name}, the file of rank {rank}, is missing beside {source}."
            fix = f"copy all {ranks} files of the checkpoint into one folder, beside its index."
            raise user_error(FileFormatError, "nnc.io.load", problem, fix=fix)
        if path.resolve().parent not in homes:
            problem = f"{path.name}, the file of rank {rank}, is a link to a file elsewhere."
            fix = "copy the file itself beside the index; a link may lead out of the folder that you meant to read."
            raise user_error(FileFormatError, "nnc.io.load", problem, fix=fix)
        yield path


def _tensors(source: Path, entries: Mapping[str, Any], paths: Sequence[Path]) -> Iterator[tuple[str, NDArray]]:
    token, ranks, sizes = entries["token"], entries["ranks"], entries["sizes"]
    parts: dict[str, list[NDArray]] = {name: [] for name in sizes}
    for rank, path in enumerate(paths):
        texts, tensors = read(path)
        if texts.get(_SHARD) != f"{token} {rank} {ranks}" or CHECK not in texts:
            raise damaged(path, f"it is not the file of rank {rank} of {ranks} that {source.name} names")
        for name, data in tensors:
            if name in sizes:
                parts[name].append(data)
            elif rank:
                raise damaged(path, f"it holds {shorten(name)}, of which rank 0 has the whole")
            else:
                yield name, data
    for name, size in sizes.items():
        length = sum(len(part) if part.ndim else 0 for part in parts[name])  # a complex128 is a row of two numbers
        if length != size or not parts[name]:
            raise damaged(source, f"the parts of {shorten(name)} have {length} elements together, not {size}")
        if len({(part.dtype, part.shape[1:]) for part in parts[name]}) > 1:
            raise damaged(source, f"the parts of {shorten(name)} are of several dtypes")
        yield name, np.concatenate(parts[name])


def _settle(folder: Path) -> None:
    """Has the system write the names of a folder to the disk, where it can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
