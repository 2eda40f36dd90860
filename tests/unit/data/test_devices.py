"""Batches on devices: sent there when they are made, or taken from arrays that lie there."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.data import batches
from nnc.errors import DeviceError, OutOfMemoryError, UnsupportedError
from tests.devices.wrong import new_device

KEY = nnc.random.key(3)
DATA = {"x": np.arange(40.0, dtype="float32").reshape(20, 2), "y": [np.arange(20), None], "name": "digits"}


def values(part: Any) -> list[Any]:
    return [np.asarray(x) for x in nnc.tree.leaves(part) if nnc.tree.is_array(x)]


def devices(part: Any) -> set[str]:
    return {x.device for x in nnc.tree.leaves(part) if isinstance(x, nnc.Array)}


def check_same(found: Any, wanted: Any, device: str) -> None:
    count = 0
    for part, other in zip(found, wanted, strict=True):
        assert nnc.tree.structure(part) == nnc.tree.structure(other) and devices(part) == {device}
        for x, y in zip(values(part), values(other), strict=True):
            assert x.dtype == y.dtype and np.array_equal(x, y)
        count += 1
    assert count


@given(
    batch=st.integers(1, 8), prefetch=st.integers(0, 3), shuffled=st.booleans(), drop_last=st.booleans(),
    step=st.integers(0, 2), source=st.sampled_from(["numpy", "cpu", "sim:0"]), device=st.sampled_from(["cpu", "sim:0", "sim:1"]),
)  # fmt: skip
def test_order_and_values_are_those_without_a_device(
    batch: int, prefetch: int, shuffled: bool, drop_last: bool, step: int, source: str, device: str
) -> None:
    data = {key: x if key == "name" or source == "numpy" else nnc.device_put(x, source) for key, x in DATA.items()}
    options: dict[str, Any] = {"epochs": 2, "drop_last": drop_last, "step": step}
    key = KEY if shuffled else None
    wanted = batches(DATA, batch, key, **options)
    check_same(batches(data, batch, key, prefetch, device=device, **options), wanted, device)


@pytest.mark.parametrize("key", [None, KEY, nnc.device_put(KEY, "sim:0")])
def test_arrays_on_a_device_are_taken_from_there(key: Any) -> None:
    data = nnc.device_put(DATA["x"], "sim:0")
    with nnc.debug.transfers("error"):
        parts = list(batches(data, 3, key, epochs=2))
    check_same(parts, batches(DATA["x"], 3, KEY if key is not None else None, epochs=2), "sim:0")


@pytest.mark.parametrize("prefetch", [0, 2])
def test_sending_was_asked_for_and_ambient_devices_change_nothing(prefetch: int) -> None:
    with nnc.debug.transfers("error"), nnc.default_device("sim:1"):
        assert devices(next(batches(DATA, 3, KEY, prefetch, device="sim:0"))) == {"sim:0"}
        assert devices(next(batches(nnp.ones(3, device="cpu"), 2, KEY, prefetch))) == {"cpu"}
        assert isinstance(next(batches(DATA["x"], 3, KEY, prefetch)), np.ndarray)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_results_of_a_transform_are_sent(prefetch: int) -> None:
    def change(key: Any, part: Any) -> Any:
        return part + 1, nnp.asarray(part), 0.5, "text", np.float32(2)

    part = next(batches(np.arange(4), 2, None, prefetch, transform=change, device="sim:0"))
    assert [x.device for x in (part[0], part[1], part[4])] == ["sim:0"] * 3 and part[2:4] == (0.5, "text")
    assert np.array_equal(part[0], [1, 2]) and np.array_equal(part[1], [0, 1]) and float(part[4]) == 2


def test_a_thread_sends_batches_before_they_are_taken() -> None:
    made, all_made = list[int](), threading.Event()

    def note(key: Any, part: Any) -> Any:
        made.append(int(part[0]))
        if len(made) == 4:
            all_made.set()
        return part

    device, name = new_device()
    with batches(np.arange(20), 1, None, 2, transform=note, device=name) as source:
        first = next(source)
        assert all_made.wait(30) and len(device.pool.largest(100)) >= 3  # one taken, two waiting
        assert float(first) == 0 and [float(next(source)) for _ in range(3)] == [1, 2, 3]


def test_the_source_may_be_written_to_once_its_batch_is_made() -> None:
    buffer = np.zeros(3, np.float32)

    def read(key: Any, part: Any) -> Any:
        buffer[...] = part[0]
        return buffer

    found = [x.tolist() for x in batches(np.arange(6.0), 1, None, 2, transform=read, device="sim:0")]
    assert found == [[n] * 3 for n in range(6)]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_errors_are_raised_where_their_batch_was_due(prefetch: int) -> None:
    def fail(key: Any, part: Any) -> Any:
        if part[0] == 4:
            raise OSError("the disk is gone")
        return part

    source = batches(np.arange(10), 2, None, prefetch, transform=fail, device="sim:0")
    assert [next(source).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(OSError, match="disk is gone"):
        next(source)
    assert list(source) == []


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_device_that_is_full_or_lost_is_told_at_the_batch(prefetch: int) -> None:
    (full, _), (lost, _) = new_device(capacity=1 << 20), new_device()
    source, kept = batches(np.ones((4, 100_000), np.float32), 1, None, prefetch, device=full.name), list[Any]()
    with pytest.raises(OutOfMemoryError, match=full.name):
        kept.extend(iter(source))
    lost.unplug()
    with pytest.raises(DeviceError, match="does not answer any more"):
        next(batches(np.arange(4), 2, None, prefetch, device=lost.name))


def test_training_on_sent_batches_ends_with_the_weights_of_the_cpu() -> None:
    @nnc.compile(donate_argnums=0)
    def step(w: Any, part: Any) -> Any:
        x, y = part["x"], part["y"][0]
        return w - 1e-3 * nnc.grad(lambda w: nnp.mean((x @ w - y) ** 2))(w)

    def train(device: str, prefetch: int) -> bytes:
        w = nnp.zeros(2, "float32", device=device)
        data = {"x": DATA["x"], "y": DATA["y"]}
        for part in batches(data, 4, KEY, prefetch, epochs=3, device=device):
            w = step(w, part)
        return np.asarray(w).tobytes()

    assert train("sim:0", 0) == train("sim:0", 2) == train("cpu", 2)


def test_a_device_that_is_not_there_is_named_at_once() -> None:
    with pytest.raises(UnsupportedError, match="there is no device 'gpu'"):
        batches(np.arange(4), 2, device="gpu")
