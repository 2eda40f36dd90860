"""Iterables of other libraries as sources of batches: DataLoaders, generators, memory maps."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ArgumentTypeError


def test_batches_of_a_data_loader_go_to_a_device_in_their_order() -> None:
    torch = pytest.importorskip("torch")
    rows = torch.utils.data.TensorDataset(torch.arange(12.0).reshape(6, 2), torch.arange(6))
    loader = torch.utils.data.DataLoader(rows, batch_size=4)
    step = nnc.compile(lambda x, y: x.sum() + y.sum())
    direct = [float(step(x, y)) for x, y in loader]
    for _ in range(2):  # an epoch each
        found = [tuple(batch) for batch in nnc.data.prefetch(loader, device="sim:0")]
        assert [x.device for x, _ in found] == ["sim:0", "sim:0"] and [y.shape for _, y in found] == [(4,), (2,)]
        assert [float(step(x, y)) for x, y in found] == direct == [34.0, 47.0]


def test_a_data_loader_stacks_rows_of_arrays_with_a_function_of_the_user() -> None:
    torch = pytest.importorskip("torch")
    rows = [(nnp.ones(3) * i, i) for i in range(4)]

    def collate(rows: list[Any]) -> Any:
        return nnc.tree.map(lambda *x: nnp.stack(x), *rows)

    loader = torch.utils.data.DataLoader(rows, batch_size=2, collate_fn=collate)
    assert [y.tolist() for _, y in nnc.data.prefetch(loader)] == [[0, 1], [2, 3]]


def test_a_memory_map_is_read_batch_by_batch(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(24, dtype=np.float32).reshape(8, 3))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    key = nnc.random.key(0)
    mapped = list(nnc.data.batches({"x": rows}, 3, key, prefetch=2))
    for batch, want in zip(mapped, nnc.data.batches({"x": np.asarray(rows)}, 3, key), strict=True):
        np.testing.assert_array_equal(batch["x"], want["x"])
    assert not any(np.shares_memory(batch["x"], rows) for batch in mapped)
    np.testing.assert_array_equal(nnc.compile(lambda x: x * 2)(rows), 2 * np.asarray(rows))


def test_batches_are_made_ahead_by_a_thread_that_ends() -> None:
    made, names = [], []

    def source() -> Iterator[int]:
        for i in range(100):
            made.append(i)
            names.append(threading.current_thread().name)
            yield i

    with nnc.data.prefetch(source(), 3) as batches:
        assert [next(batches), next(batches)] == [0, 1]
    assert list(batches) == []
    assert 2 <= len(made) <= 7 and set(names) == {"nnc.data.prefetch"}


def test_an_error_of_the_source_is_raised_where_its_batch_was_due() -> None:
    def source() -> Iterator[np.ndarray]:
        yield np.zeros(2)
        raise OSError("the disk is gone")

    batches = nnc.data.prefetch(source())
    assert next(batches).shape == (2,)
    with pytest.raises(OSError, match="the disk is gone"):
        next(batches)
    assert list(batches) == []


def test_a_source_that_is_none_and_a_wrong_size_are_mistakes() -> None:
    with pytest.raises(ArgumentTypeError, match="source is a int, which is not iterable"):
        nnc.data.prefetch(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="size is 0; it must be at least 1"):
        nnc.data.prefetch([], 0)
