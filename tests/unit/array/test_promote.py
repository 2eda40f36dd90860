"""From NumPy's conventions to strict commands."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.array import promote
from nnc.base import dtypes
from nnc.errors import ArgumentTypeError, DTypeError, ShapeError
from nnc.graph import command


def test_arrays_numbers_and_tracers_are_operands_already() -> None:
    x = nnp.ones(2)
    for value in (x, np.ones(2), np.float32(1), 1, 2.5, True, 1j):
        assert promote.as_operand(value) is value


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([1, 2], "int64"), ([1.0, 2], "float32"), ([True], "bool"), ([1j, 2], "complex64"), ([[1], [2.5]], "float32"),
        ([np.float64(1), 2.0], "float64"), ([np.float16(1), np.float16(2)], "float16"), ((np.int8(1), np.int8(1)), "int8"),
        ([np.ones(2, "float32"), np.zeros(2, "float32")], "float32"), (range(3), "int64"), ([], "float32"),
        (memoryview(array.array("d", [1.0])), "float64"), (np.ones(2, ">f8"), "float64"),
    ],
)  # fmt: skip
def test_nested_lists_and_buffers_become_arrays(value: Any, dtype: str) -> None:
    result = promote.as_operand(value)
    assert result.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(result, np.asarray(value))


def test_lists_of_nnc_arrays_are_stacked() -> None:
    x = nnp.asarray([1.0, 2.0])
    assert promote.as_operand([x, [3.0, 4.0], (5, 6)]).tolist() == [[1, 2], [3, 4], [5, 6]]
    assert promote.as_operand([[x[0], 1.0], [2.0, x[1]]]).tolist() == [[1, 1], [2, 2]]
    assert nnc.grad(lambda w: nnp.sum(promote.as_operand([w, 2 * w, 1.0])))(3.0) == 3


def test_objects_with_array_or_dlpack_are_converted() -> None:
    class WithArray:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.arange(3.0)

    class WithDlpack:
        def __dlpack__(self, **kwargs: Any) -> Any:
            return np.arange(3.0).__dlpack__(**kwargs)

        def __dlpack_device__(self) -> Any:
            return (1, 0)

    for value in (WithArray(), WithDlpack()):
        assert promote.as_operand(value).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, ArgumentTypeError), ("text", ArgumentTypeError), ({1}, ArgumentTypeError), ({"a": 1}, ArgumentTypeError),
        (object(), ArgumentTypeError), (["a"], ArgumentTypeError), ([None], ArgumentTypeError), (len, ArgumentTypeError),
        (np.array(["a"]), DTypeError), (np.array([None]), DTypeError), (np.array(1, "M8[s]"), DTypeError),
        (np.ones(1, np.longdouble), DTypeError), ([[1], [1, 2]], ShapeError), ([1, [2]], ShapeError), (b"ab", ArgumentTypeError),
        ([2**63], DTypeError), ([2**70, 1], DTypeError), ([-(2**63) - 1], DTypeError),
        (np.ma.array([1.0], mask=[True]), ArgumentTypeError), ((i for i in range(2)), ArgumentTypeError),
    ],
)  # fmt: skip
def test_objects_that_cannot_be_arrays_are_refused(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"(?s)asarray: obj .*Fix: "):
        promote.as_operand(value, "asarray", "obj")


def test_python_integers_must_fit_and_floats_become_infinite() -> None:
    for dtype, number in (
        ("int8", 128),
        ("int8", -129),
        ("uint8", -1),
        ("uint8", 256),
        ("int64", 2**63),
        ("uint64", 2**64),
    ):
        with pytest.raises(DTypeError, match="does not fit"):
            promote.astype(number, np.dtype(dtype))
        with pytest.raises(DTypeError, match="does not fit"):
            nnp.ones(1, dtype) + number
    for dtype in ("float16", "float32"):
        assert np.isinf(promote.astype(1e300, np.dtype(dtype)))
    assert np.isinf(promote.as_operand([1e300])[0])
    with pytest.raises(DTypeError, match="does not fit"):
        promote.astype(float("nan"), dtypes.int32)


def test_result_dtype_of_weak_and_strong_operands() -> None:
    half, double, i32 = np.float16(1), np.ones(1), np.ones(1, "i4")
    weak = nnc.asarray(2.0).as_weak()
    for operands, name in (
        ((1, 2.0), "float32"), ((half, 2.0), "float16"), ((half, weak), "float16"), ((i32, weak), "float32"),
        ((i32, 2.0, half), "float16"), ((double, half), "float64"), ((True, 1), "int64"), ((i32, 1j), "complex64"),
        ((np.bool_(True), 1), "int64"), ((weak, weak), "float32"),
    ):  # fmt: skip
        assert promote.result_dtype(*operands).name == name


def test_broadcasting() -> None:
    a, b, c = promote.broadcast(nnp.ones((3, 1)), nnp.ones(4), np.float32(1))
    assert a.shape == b.shape == c.shape == (3, 4)
    assert [x.shape for x in promote.broadcast(nnp.ones((0, 1)), nnp.ones(3))] == [(0, 3)] * 2
    deep = nnp.ones((1,) * 33 + (2,))
    assert promote.broadcast(deep, nnp.ones(()))[1].shape == deep.shape
    with pytest.raises(ShapeError, match=r"\(3,\) and \(4,\) do not broadcast"):
        promote.broadcast(nnp.ones(3), nnp.ones(4))


def test_commands_take_python_numbers_directly() -> None:
    assert float(command("sin")(0.0)) == 0
    assert command("add")(1, 2).dtype == nnp.int64
    assert command("mul")(nnp.asarray(2.0), 3.0).tolist() == 6
    with pytest.raises(ShapeError):
        command("add")(nnp.ones(3), 1.0)
    with pytest.raises(DTypeError):
        command("add")(nnp.ones((), "float64"), nnp.ones((), "float32"))
