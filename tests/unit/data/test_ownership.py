"""Batches own their memory: neither their users nor their makers write to the other's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("key", [None, 3])
@pytest.mark.parametrize("device", [None, "cpu", "sim:0"])
def test_writing_to_batches_leaves_the_arrays(prefetch: int, key: int | None, device: str | None) -> None:
    data = {"x": np.arange(6.0), "y": np.arange(12).reshape(6, 2)}
    orders = None if key is None else nnc.random.key(key)
    for batch in nnc.data.batches(data, 3, orders, prefetch, epochs=2, device=device):
        for part in batch.values():
            assert not np.shares_memory(np.asarray(part), data["x"]) and not np.shares_memory(
                np.asarray(part), data["y"]
            )
            if device is None:
                part -= 10
    assert data["x"].tolist() == [0, 1, 2, 3, 4, 5] and data["y"].ravel().tolist() == list(range(12))


def test_writing_to_the_arrays_leaves_the_batches_that_were_made() -> None:
    data = np.arange(4.0)
    batches = list(nnc.data.batches(data, 2))
    data[:] = -1
    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3]]


def test_batches_of_memory_maps_are_not_the_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(4.0))
    rows = np.load(tmp_path / "x.npy", mmap_mode="r+")
    for batch in (*nnc.data.batches(rows, 2), *nnc.data.prefetch([rows])):
        batch += 1
        assert not isinstance(batch, np.memmap)
    assert np.load(tmp_path / "x.npy").tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("device", [None, "cpu", "sim:0"])
@pytest.mark.parametrize("size", [1, 3])
def test_a_source_may_fill_one_buffer_again_and_again(device: str | None, size: int) -> None:
    def source() -> Iterator[Any]:
        buffer, pair = np.zeros(1), np.zeros((2, 2), np.int32)
        for i in range(6):
            buffer[0] = i
            pair[:] = i
            yield {"buffer": buffer, "column": pair[:, 1], "i": i}

    found = list(nnc.data.prefetch(source(), size, device=device))
    assert [(float(b["buffer"][0]), np.asarray(b["column"]).tolist(), b["i"]) for b in found] == [
        (i, [i, i], i) for i in range(6)
    ]


def test_a_source_may_fill_one_tensor_again_and_again() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(2)
    found = list(nnc.data.prefetch(tensor.fill_(i) for i in range(4)))
    assert [batch.tolist() for batch in found] == [[i, i] for i in range(4)]


def test_masks_stay_with_the_copies_of_a_source() -> None:
    masked = np.ma.array([1.0, 2.0], mask=[True, False])
    (found,) = nnc.data.prefetch([masked])
    assert found.mask.tolist() == [True, False] and not np.shares_memory(found.data, masked.data)
