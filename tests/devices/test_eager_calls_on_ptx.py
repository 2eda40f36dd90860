"""Public functions on arrays of a device with printed kernels: all commands of a call are one program, from the first call on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.base.context import with_mode
from nnc.compiled.device_program import program_of
from nnc.device.kinds import KINDS
from nnc.errors import ArgumentTypeError, DeviceError, OutOfBoundsError
from nnc.graph import register
from nnc.graph.rules import Rules
from nnc.trace.core import on_device
from tests.devices.test_ptx import check_close

DEVICE = "ptx:0"
DTYPES = ("float32", "float64", "bfloat16", "float16", "int32", "uint8", "bool")
SHAPES = ((), (1,), (7,), (3, 5), (2, 1, 33))

CALLS: dict[str, Callable[..., Any]] = {
    "x + 1": lambda x, y: x + 1,
    "x * 2.5": lambda x, y: x * 2.5,
    "1 - x": lambda x, y: 1 - x,
    "x / 3": lambda x, y: x / 3,
    "x ** 2": lambda x, y: x**2,
    "x + y": lambda x, y: x + y,
    "x + x": lambda x, y: x + x,
    "x * (y > 0)": lambda x, y: x * (y > 0),
    "where": lambda x, y: nnp.where(x > 0, y, 0),
    "mean": lambda x, y: nnp.mean(x),
    "var": lambda x, y: nnp.var(x, axis=-1) if x.ndim else nnp.var(x),
    "softmax": lambda x, y: nn.softmax(nnp.asarray(x, "float32"), axis=-1) if x.ndim else x,
    "reshape": lambda x, y: nnp.reshape(x, (-1,)),
    "x[..., None]": lambda x, y: x[..., None],
    "x.T": lambda x, y: x.T,
    "concatenate": lambda x, y: nnp.concatenate([nnp.ravel(x), nnp.ravel(y)]),
    "asarray": lambda x, y: nnp.asarray(x),
    "sum, keepdims": lambda x, y: nnp.sum(x, keepdims=True),
    "maximum": lambda x, y: nnp.maximum(x, y),
    "weak": lambda x, y: nnp.asarray(2.0) * x,
}


def there(x: Any) -> Any:
    return nnc.device_put(x, DEVICE)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs of the programs that are made."""
    made = list[Any]()

    def note(graph: Any, interpreter: Any) -> Any:
        made.append(graph)
        return program_of(graph, interpreter)

    monkeypatch.setitem(KINDS, "ptx", dataclasses.replace(KINDS["ptx"], queue=lambda: note))
    return made


@pytest.mark.parametrize("name", CALLS)
def test_calls_have_the_values_of_the_cpu_and_the_same_bits_in_each_call(name: str) -> None:
    function, draw = CALLS[name], np.random.default_rng(len(name))
    for dtype in DTYPES:
        for shape in SHAPES:
            x, y = (nnp.asarray(draw.integers(0, 4, shape) if dtype != "float32" else draw.normal(size=shape), dtype)
                    for _ in range(2))  # fmt: skip
            try:
                wanted = function(x, y)
            except nnc.errors.NncError as error:
                with pytest.raises(type(error)):
                    function(there(x), there(y))
                continue
            found = [function(there(x), there(y)) for _ in range(4)]
            with with_mode("unspecialised"):
                apart = function(there(x), there(y))
            for result in (*found, apart):
                assert (result.device, result.spec, result.weak) == (DEVICE, wanted.spec, wanted.weak)
                assert np.array_equal(np.asarray(result), np.asarray(found[0]), equal_nan=True) or result is apart
                check_close(result, wanted, 2e-2 if dtype in ("bfloat16", "float16") else 1e-5)


def test_a_call_is_one_program_which_is_made_once(programs: list[Any]) -> None:
    for i in range(5):
        x = there(np.full((2, 3), i, np.float32))
        nn.softmax(x, axis=-1)
    assert [graph.name for graph in programs] == ["softmax"] and len(programs[0].nodes) > 5


def test_numbers_that_change_make_no_further_program_and_have_their_own_values(programs: list[Any]) -> None:
    x = there(np.arange(3, dtype=np.float32))
    for i in range(600):  # more than are kept
        assert np.array_equal(x * (i + 0.5), np.arange(3) * np.float32(i + 0.5))
    assert np.array_equal(x * 0.0, [0, 0, 0]) and np.signbit(np.asarray(x * -0.0)).all()
    assert len(programs) == 1


def test_a_known_call_runs_no_command_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("the call was not followed")

    x = there(np.ones(3, np.float32))
    monkeypatch.setattr(on_device.DeviceInterpreter, "process", refuse)
    for other in (2.5, 2.5, 3, nnc.asarray(2.0), there(np.float32(2))):
        check_close(x + other, np.full(3, 1 + float(other), np.float32))


def test_operands_from_elsewhere_follow_or_are_refused_as_in_the_function_itself() -> None:
    x = there(np.ones(3, np.float32))
    for _ in range(4):
        assert (x + nnc.asarray(2.0)).device == (x + np.ones(3, np.float32)).device == DEVICE
        with pytest.raises(DeviceError, match="ptx:0 and on cpu"):
            x + nnc.asarray(np.ones(3, np.float32))
        with pytest.raises(DeviceError, match="ptx:0 and on sim:0"):
            x + nnc.device_put(np.ones(3, np.float32), "sim:0")
    gone = there(np.ones(3, np.float32))
    nnc.compile(lambda x: x + 1, donate_argnums=0)(gone)
    with pytest.raises(ArgumentTypeError, match="reused"):
        gone + 1


def test_calls_within_functions_and_within_the_ambient_device_are_joined_too(programs: list[Any]) -> None:
    x = there(np.ones((2, 3), np.float32))
    with nnc.default_device(DEVICE):
        a = nn.softmax(x, axis=-1)
    layer = nnc.tree.map(there, nn.Linear(3, 2, key=nnc.random.key(0)))
    made = len(programs)
    b = [layer(x) for _ in range(3)]
    assert a.device == b[0].device == DEVICE and len(programs) - made <= 3
    assert nnp.zeros(2).device == "cpu"


def test_late_errors_name_the_line_of_their_own_call() -> None:
    x, good, bad = there(np.ones((6, 4), np.float32)), there(np.array([0, 3])), there(np.array([0, 77]))
    for _ in range(4):
        nnc.block_until_ready(x[good])
    first = x[bad]  # the first line
    second = x[bad]  # the second line
    for late, line in ((first, "the first line"), (second, "the second line")):
        with pytest.raises(OutOfBoundsError, match=f"index 77(.|\n)*{line}"):
            np.asarray(late)


def test_calls_are_joined_again_after_the_registry_has_changed(programs: list[Any], own_registries: None) -> None:
    x = there(np.ones((2, 3), np.float32))
    nn.softmax(x, axis=-1)
    register("another_of_this_test", Rules(infer=lambda x: x, reference=lambda x: x))
    for _ in range(3):
        nn.softmax(x, axis=-1)
    assert {graph.name for graph in programs} == {"softmax"} and len(programs) <= 2
