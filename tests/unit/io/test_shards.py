"""Checkpoints with a file of each rank, of which one process plays all."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, FileFormatError
from nnc.io import files, load, save, shards
from nnc.io.layout import describe
from nnc.trace.core.parts import Sharded

SIZE = 7


def state(data: Any) -> Any:
    return {
        "w": nnp.arange(3.0),
        "opt": Sharded({"mu": nnp.asarray(data), "count": nnp.asarray(4)}, SIZE, "data"),
        "n": 2,
    }


WHOLE = np.arange(SIZE, dtype=np.float32) + 1


def part(rank: int, ranks: int, whole: Any = WHOLE) -> Any:
    """A rank's part as a step leaves it, with zeros behind the last."""
    width = -(-SIZE // ranks)
    return np.concatenate([whole, np.zeros(SIZE * ranks, whole.dtype)])[rank * width : (rank + 1) * width]


def write(path: Path, ranks: int, token: str, whole: Any = WHOLE, index: bool = True) -> None:
    """Writes as so many processes do."""
    for rank in range(ranks):
        value = state(part(rank, ranks, whole))
        layout = describe(value, "test")
        arrays, wide = files._tensors(layout)
        sizes = shards.sizes_of(value, layout, ranks)
        shards.write_shard(path, token, rank, ranks, shards.own_part(arrays, sizes, rank, ranks))
    if index:
        header = {files.FORMAT: json.dumps({"version": files.VERSION, "dtypes": wide, "tree": layout.structure})}
        shards.write_index(path, token, ranks, header, sizes)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7, 9])
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_parts_of_any_number_of_ranks_are_the_whole(tmp_path: Path, ranks: int, dtype: Any) -> None:
    path, whole = tmp_path / "a", WHOLE.astype(dtype)
    write(path, ranks, "0" * 8, whole)
    found = load(path, like=state(np.zeros(SIZE, dtype)))
    assert isinstance(found["opt"], Sharded) and found["n"] == 2
    assert np.asarray(found["opt"].state["mu"]).tobytes() == whole.tobytes()
    assert found["opt"].state["count"] == 4 and found["w"].tolist() == [0, 1, 2]
    assert load(path)["w"].tolist() == [0, 1, 2]


def test_a_process_by_itself_writes_one_file_and_the_index(tmp_path: Path) -> None:
    path = tmp_path / "a"
    save(path, state(WHOLE), sharded=True)
    first = set(tmp_path.iterdir())
    save(path, state(WHOLE * 2), sharded=True)
    second = set(tmp_path.iterdir())
    assert len(first) == len(second) == 2 and first & second == {path}
    assert load(path, like=state(WHOLE))["opt"].state["mu"].tolist() == (WHOLE * 2).tolist()


def test_each_file_is_readable_by_itself(tmp_path: Path) -> None:
    write(tmp_path / "a", 2, "0" * 8)
    assert load(tmp_path / "a.00000000.1-of-2.safetensors")["opt.state.mu"].tolist() == [5, 6, 7]


def test_a_crash_before_the_index_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, 2, "0" * 8)
    write(path, 4, "1" * 8, WHOLE * 2, index=False)
    assert load(path, like=state(WHOLE))["opt"].state["mu"].tolist() == WHOLE.tolist()
    write(path, 3, "2" * 8, WHOLE * 3)
    assert load(path, like=state(WHOLE))["opt"].state["mu"].tolist() == (WHOLE * 3).tolist()
    assert len(list(tmp_path.iterdir())) == 4  # the files of the crash are removed


def test_damage_is_worded(tmp_path: Path) -> None:
    path, shard = tmp_path / "a", tmp_path / "a.00000000.1-of-2.safetensors"
    write(path, 2, "0" * 8)
    good, index = shard.read_bytes(), path.read_bytes()
    for at in (len(good) - 1, len(good) // 2, 3):
        shard.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(FileFormatError, match="1-of-2"):
            load(path)
    shard.write_bytes((tmp_path / "a.00000000.0-of-2.safetensors").read_bytes())
    with pytest.raises(FileFormatError, match="not the file of rank 1 of 2"):
        load(path)
    shard.unlink()
    with pytest.raises(FileFormatError, match=r"the file of rank 1, is missing(.|\n)*copy all 2 files"):
        load(path)
    shard.write_bytes(good)
    path.write_bytes(index[:-20])
    with pytest.raises(FileFormatError, match="checksum"):
        load(path)
    text = index.split(b"\n")[0].replace(b'"nnc.shards":1', b'"nnc.shards":9')
    path.write_bytes(text + f"\n{zlib.crc32(text):08x}\n".encode())
    with pytest.raises(FileFormatError, match="version 9"):
        load(path)


def test_a_part_of_another_number_of_ranks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="on 1 ranks has 7"):
        nnc.io.save(tmp_path / "a", state(part(0, 2)), sharded=True)
    assert not list(tmp_path.iterdir())


def test_parts_find_their_places_in_a_tree_of_another_order(tmp_path: Path) -> None:
    """Names decide, not the order in which a tree has its leaves, or in which files and the index list them."""

    def tree(x: Any, y: Any, turned: bool) -> Any:
        parts = {
            "y": Sharded({"mu": y, "nu": y * 2}, SIZE, "data"),
            "b": y[0],
            "x": Sharded({"nu": x * 2, "mu": x}, SIZE, "data"),
        }
        return dict(reversed(parts.items())) if turned else parts

    path, x, y = tmp_path / "a", WHOLE, -WHOLE
    for rank in range(2):
        value = tree(part(rank, 2, x), part(rank, 2, y), turned=False)
        layout = describe(value, "test")
        arrays, wide = files._tensors(layout)
        sizes = shards.sizes_of(value, layout, 2)
        own = shards.own_part(arrays, sizes, rank, 2)
        shards.write_shard(path, "0" * 8, rank, 2, dict(sorted(own.items(), reverse=rank == 1)))
    header = {files.FORMAT: json.dumps({"version": files.VERSION, "dtypes": wide, "tree": layout.structure})}
    shards.write_index(path, "0" * 8, 2, header, dict(reversed(sizes.items())))
    for turned in (False, True):
        found = load(path, like=tree(np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32), turned))
        for name, whole in (("x", x), ("y", y)):
            assert found[name].state["mu"].tolist() == whole.tolist()
            assert found[name].state["nu"].tolist() == (whole * 2).tolist()
        assert found["b"] == y[0]
