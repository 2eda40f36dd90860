"""Files and devices: each tensor goes to its device when it is read, and arrays of devices are saved by their elements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import nnc
import nnc.numpy as nnp
from nnc import nn, optim
from nnc.base.dtypes import bfloat16
from nnc.errors import FileFormatError, OutOfMemoryError, TreeError, UnsupportedError
from tests.devices.wrong import new_device

DTYPES = ("bool", "int8", "uint64", "float16", bfloat16, "float32", "float64", "complex64", "complex128")


def tree(device: str) -> dict[str, Any]:
    """Arrays of many dtypes and shapes, numbers and texts."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 2, shape).astype(dtype) for dtype in DTYPES for shape in ((2, 3), (), (0, 4), (70_000,))]
    return {"arrays": nnc.device_put(arrays, device), "rate": 0.5, "name": "x", "none": None}


def bits(value: Any) -> list[Any]:
    return [(x.dtype, x.shape, np.asarray(x).tobytes()) for x in nnc.tree.leaves(value) if isinstance(x, nnc.Array)]


def devices(value: Any) -> set[str]:
    return {x.device for x in nnc.tree.leaves(value) if isinstance(x, nnc.Array)}


@pytest.mark.parametrize("saved", ["cpu", "sim:0"])
@pytest.mark.parametrize("loaded", ["cpu", "sim:0", "sim:1"])
def test_arrays_of_any_device_come_back_on_any(saved: str, loaded: str, tmp_path: Path) -> None:
    path, value = tmp_path / "x.safetensors", tree(saved)
    nnc.io.save(path, value)
    for back in (nnc.io.load(path, device=loaded), nnc.io.load(path, like=value, device=loaded)):
        assert devices(back) == {loaded} and bits(back) == bits(value)
        assert (back["rate"], back["name"], back["none"]) == (0.5, "x", None)


def test_files_of_all_devices_are_equal(tmp_path: Path) -> None:
    for device in ("cpu", "sim:0"):
        nnc.io.save(tmp_path / device, tree(device))
    assert (tmp_path / "cpu").read_bytes() == (tmp_path / "sim:0").read_bytes()


def test_without_a_device_arrays_lie_where_those_of_like_do_or_on_the_default_one(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    nnc.io.save(path, {"a": nnp.ones(2), "b": nnp.zeros(3)})
    assert devices(nnc.io.load(path)) == {"cpu"}
    like = {"a": nnp.zeros(2), "b": nnp.zeros(3, device="sim:1")}
    found = nnc.io.load(path, like=like)
    assert (found["a"].device, found["b"].device) == ("cpu", "sim:1")
    with nnc.default_device("sim:0"):
        assert devices(nnc.io.load(path)) == {"sim:0"} and devices(nnc.io.load(path, device="cpu")) == {"cpu"}
        found = nnc.io.load(path, like={"a": nnc.ShapeDtypeStruct((2,), np.float32), "b": np.zeros(3, np.float32)})
        assert devices(found) == {"sim:0"}
        assert nnc.io.load(path, like=like)["a"].device == "cpu"


def test_a_donated_array_in_like_stands_for_its_spec(tmp_path: Path) -> None:
    path, x = tmp_path / "x.safetensors", nnc.device_put(np.ones(2, np.float32), "sim:0")
    nnc.io.save(path, x)
    x.delete()
    assert nnc.io.load(path, like=x).device == "cpu" and nnc.io.load(path, like=x, device="sim:0").device == "sim:0"


def test_a_model_with_its_optimizer_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path, optimizer = tmp_path / "x.safetensors", optim.adam(0.1)
    model = nnc.device_put(nn.MLP(2, 1, 4, 1, key=nnc.random.key(0)), "sim:0")

    def step(model: Any, state: Any) -> tuple[Any, Any]:
        grads = nnc.grad(lambda m: nnp.sum(m(np.ones((3, 2), np.float32)) ** 2))(model)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state

    before = step(model, optimizer.init(model))
    nnc.io.save(path, before)
    back = nnc.io.load(path, like=before)
    assert devices(back) == {"sim:0"} and bits(step(*back)) == bits(step(*before))


def test_files_of_other_programs_go_to_a_device(tmp_path: Path) -> None:
    path, x = tmp_path / "x.safetensors", np.arange(6, dtype=np.float32)
    safetensors.numpy.save_file({"x": x}, path)
    for found in (nnc.io.load(path, device="sim:0"), nnc.io.load(path, like={"x": nnp.zeros(6, device="sim:0")})):
        assert found["x"].device == "sim:0" and np.array_equal(found["x"], x)


def test_each_tensor_is_sent_before_the_next_is_read(tmp_path: Path) -> None:
    """A device without memory for all of them stops the reading at the second one, and has lost nothing after it."""
    path, (_, name) = tmp_path / "x.safetensors", new_device(capacity=1 << 20)
    nnc.io.save(path, {key: np.ones(200_000, np.float32) for key in "abc"})
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # the end of the last tensor, which shows only when all are read
    path.write_bytes(data)
    with pytest.raises(OutOfMemoryError, match=name):
        nnc.io.load(path, device=name)
    with pytest.raises(FileFormatError, match="checksum"):
        nnc.io.load(path, device="sim:0")
    assert float(nnp.ones(200_000, device=name).sum()) == 200_000


def test_files_are_transfers_that_were_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    nnc.io.save(path, nnp.ones(2))
    with nnc.debug.transfers("error"), nnc.default_device("sim:0"):
        x = nnc.io.load(path)
        assert x.device == nnc.io.load(path, device="sim:0").device == "sim:0"
        nnc.io.save(path, x + 1)
    assert np.array_equal(nnc.io.load(path), [2, 2])


def test_mistakes_are_told(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    nnc.io.save(path, nnp.ones(2))
    with pytest.raises(UnsupportedError, match="there is no device 'gpu'"):
        nnc.io.load(path, device="gpu")
    with pytest.raises(TreeError, match=r"float32\[2\] in the file, float32\[3\]"):
        nnc.io.load(path, like=nnp.zeros(3, device="sim:0"))
