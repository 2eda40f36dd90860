"""Files that somebody forged: an index or a header whose checksum is right, and whose contents are not."""

from __future__ import annotations

import copy
import json
import os
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import FileFormatError
from nnc.io.layout import walk

TREE: dict[Any, Any] = {
    "a": {"x": nnp.ones(3), "y": [nnp.zeros((2, 2)), 1, 2.5, None, "s", float("inf")]}, ("t", 1): nnp.asarray([1j]),
}  # fmt: skip


@pytest.fixture
def index(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    path = tmp_path / "m"
    nnc.io.save(path, TREE, sharded=True)
    return path, json.loads(path.read_bytes().split(b"\n")[0])


def write_index(path: Path, entries: Any) -> None:
    text = json.dumps(entries, separators=(",", ":")).encode()
    path.write_bytes(text + f"\n{zlib.crc32(text):08x}\n".encode())


def inner(entries: dict[str, Any], tree: Any) -> dict[str, Any]:
    description = {**json.loads(entries["texts"]["nnc"]), "tree": tree}
    return {**entries, "texts": {"nnc": json.dumps(description)}}


WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no token": lambda e: {k: v for k, v in e.items() if k != "token"},
    "a token of a number": lambda e: {**e, "token": 3},
    "a token above the folder": lambda e: {**e, "token": "../../etc"},
    "a token that is an absolute path": lambda e: {**e, "token": "/etc/passwd"},
    "a long token": lambda e: {**e, "token": "0" * 100000},
    "no ranks": lambda e: {k: v for k, v in e.items() if k != "ranks"},
    "ranks of text": lambda e: {**e, "ranks": "1"},
    "ranks that are true": lambda e: {**e, "ranks": True},
    "no rank": lambda e: {**e, "ranks": 0},
    "many ranks": lambda e: {**e, "ranks": 10**9},
    "sizes in a list": lambda e: {**e, "sizes": ["x"]},
    "sizes of text": lambda e: {**e, "sizes": {"x": "3"}},
    "sizes of what is not there": lambda e: {**e, "sizes": {"x": 3}},
    "no texts": lambda e: {k: v for k, v in e.items() if k != "texts"},
    "texts of numbers": lambda e: {**e, "texts": {"nnc": 3}},
    "a version in a list": lambda e: {**e, "nnc.shards": [1]},
    "a size of another tensor": lambda e: {**e, "sizes": {"a.x": 4}},
    "a matrix in parts": lambda e: {**e, "sizes": {"a.y.0": 4}},
    "parts without elements": lambda e: {**e, "sizes": {"absent": 0}},
    "a deep value": lambda e: inner(e, json.loads('{"list":[' * 300 + "3" + "]}" * 300)),
    "a child without a key": lambda e: inner(e, {"dict": [[{"tensor": "a.x"}]]}),
    "an infinite number that is a large one": lambda e: inner(e, {"value": 10**400, "type": "float"}),
    "a key that is too large": lambda e: inner(e, {"dict": [[10**4000, {"tensor": "a.x"}]]}),
    "a value that is a list": lambda e: inner(e, {"value": [1]}),
    "a tensor that is a list": lambda e: inner(e, {"tensor": ["a.x"]}),
    "a type that is a list": lambda e: inner(e, {"value": "1", "type": ["float"]}),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_forged_index_is_refused(index: tuple[Path, dict[str, Any]], name: str) -> None:
    path, entries = index
    write_index(path, WRONG[name](entries))
    with pytest.raises(FileFormatError):
        nnc.io.load(path)


@pytest.mark.parametrize("text", [b"{", b"\xff\xfe", b"[" * 100000, b'"\\ud800"', b"1" * 5000], ids=len)
def test_an_index_that_is_no_json_is_refused(index: tuple[Path, dict[str, Any]], text: bytes) -> None:
    path, _ = index
    text = b'{"nnc.shards":' + text
    path.write_bytes(text + f"\n{zlib.crc32(text):08x}\n".encode())
    with pytest.raises(FileFormatError):
        nnc.io.load(path)


def test_files_of_ranks_stay_within_the_folder(index: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    path, _ = index
    (shard,) = (file for file in tmp_path.iterdir() if file.name.endswith(".safetensors"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shard.rename(elsewhere / shard.name)
    shard.symlink_to(elsewhere / shard.name)
    with pytest.raises(FileFormatError, match="is a link to a file elsewhere"):
        nnc.io.load(path)
    shard.unlink()
    os.mkfifo(shard)
    with pytest.raises(FileFormatError, match="is missing"):
        nnc.io.load(path)
    shard.unlink()
    shard.mkdir()
    with pytest.raises(FileFormatError, match="is missing"):
        nnc.io.load(path)


def test_a_cache_of_links_into_one_folder_is_read(index: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    cache = tmp_path / "snapshot"
    cache.mkdir()
    for file in list(tmp_path.iterdir()):
        if file.is_file():
            (cache / file.name).symlink_to(file)
    assert nnc.io.load(cache / "m")["a"]["x"].tolist() == [1, 1, 1]


def test_long_names_of_many_leaves_are_refused() -> None:
    leaves = {"list": [{"value": 1}] * 50000}
    with pytest.raises(ValueError, match="its names are too long"):
        list(walk({"dict": [["k" * 1000000, leaves]]}))


def test_the_leaves_of_deep_trees_cost_no_more_than_those_of_flat_ones() -> None:
    node: Any = {"list": [{"value": i} for i in range(2000)]}
    for _ in range(5000):  # deeper than Python calls functions
        node = {"tuple": [node]}
    names = [name for name, _ in walk(node)]
    assert len(names) == 2000 and names[7] == "0." * 5000 + "7"


@pytest.mark.parametrize(
    "shape", [[1] * 65, [2**63, 0], [0, 2**62, 2**62]], ids=["many axes", "a large axis", "large axes"]
)
def test_tensors_of_shapes_that_no_array_has_are_refused(tmp_path: Path, shape: list[int]) -> None:
    nbytes = 0 if 0 in shape else 4
    header = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, nbytes]}}).encode()
    (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header + bytes(nbytes))
    with pytest.raises(FileFormatError):
        nnc.io.load(tmp_path / "x")


# -- generated damage --------------------------------------------------------------------------------------------------

ODD: list[Any] = [
    None, True, 0, -1, 2**63, 10**30, 1.5, "", "x", "../x", "/etc/passwd", "\0", [], {}, [[]], {"a": 1}, {"tuple": [1]}, "9" * 5000,
    {"dict": []}, {"list": []}, {"tensor": "a.x"}, {"none": None},
]  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """All places in nested lists and dicts, as a container and a key."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def damaged_copy(draw: random.Random, value: Any) -> Any:
    value = copy.deepcopy(value)
    for _ in range(draw.choice([1, 1, 2, 3])):
        found = list(places(value))
        if not found:
            return value
        holder, key = draw.choice(found)
        change = draw.randrange(4)
        if change == 0:
            del holder[key]
        elif change == 1:
            for _ in range(draw.choice([1, 40, 200])):
                holder[key] = [holder[key]] if draw.random() < 0.5 else {"list": [holder[key]]}
        elif change == 2 and isinstance(holder[key], str):
            holder[key] = holder[key] * 3 + draw.choice(["", "/../", "\n"])
        else:
            holder[key] = copy.deepcopy(draw.choice(ODD))
    return value


@pytest.mark.parametrize("seed", range(4))
def test_generated_damage_is_called_so_or_harmless(index: tuple[Path, dict[str, Any]], seed: int) -> None:
    path, entries = index
    draw, description = random.Random(seed), json.loads(entries["texts"]["nnc"])
    header = {
        "x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "__metadata__": {"nnc": json.dumps(description)},
    }
    for turn in range(100):
        if turn % 3 == 0:
            text = json.dumps(damaged_copy(draw, header)).encode()
            (path.parent / "h").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
        elif turn % 3 == 1:
            write_index(path, {"nnc.shards": 1, **damaged_copy(draw, {**entries, "nnc.shards": 1})})
        else:
            write_index(path, {**entries, "texts": {"nnc": json.dumps(damaged_copy(draw, description))}})
        try:
            nnc.io.load(path.parent / "h" if turn % 3 == 0 else path)
        except FileFormatError:
            continue


def test_numbers_of_the_header_of_any_size_are_refused(tmp_path: Path) -> None:
    nnc.io.save(tmp_path / "x", {"a": np.ones(3)})
    good = (tmp_path / "x").read_bytes()
    for size in (0, 1, len(good), 2**31, 2**40, 2**63, 2**64 - 1):
        (tmp_path / "x").write_bytes(size.to_bytes(8, "little") + good[8:])
        with pytest.raises(FileFormatError):
            nnc.io.load(tmp_path / "x")
