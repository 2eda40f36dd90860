"""Concrete arrays: immutable, and at home among NumPy arrays."""

from __future__ import annotations

import ast
import copy
import inspect
import math
import operator
import pickle
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.array.operators import ArrayMethods, NamedMethods, array_method
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, NncError, ShapeError, TraceError, UnsupportedError

X = nnp.asarray([1.0, 2.0, 3.0])
A = np.array([4.0, 5.0, 6.0])


# -- immutability ------------------------------------------------------------------------------------------------------


def test_elements_and_attributes_cannot_be_assigned() -> None:
    with pytest.raises(ArgumentTypeError, match=r"x\.at\[index\]\.set"):
        X[0] = 5.0
    for name in ("spec", "weak", "_data", "shape", "dtype", "new"):
        with pytest.raises((ArgumentTypeError, AttributeError)):
            setattr(X, name, 3)
    with pytest.raises(TypeError):
        del X[0]
    assert X.tolist() == [1, 2, 3]


def test_augmented_assignment_binds_a_new_array() -> None:
    x = y = nnp.asarray([1.0, 2.0])
    x += 1
    x *= 2
    assert (x.tolist(), y.tolist()) == ([4, 6], [1, 2])


def test_views_in_numpy_are_read_only_and_share_memory() -> None:
    view = np.asarray(X)
    assert np.shares_memory(view, np.asarray(X))
    assert not view.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 5
    writable = np.array(X)
    writable[0] = 5
    assert X.tolist() == [1, 2, 3]


def test_at_returns_a_new_array() -> None:
    assert X.at[1].set(9.0).tolist() == [1, 9, 3]
    assert X.at[1].add(9.0).tolist() == [1, 11, 3]
    assert X.tolist() == [1, 2, 3]


# -- NumPy -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "op",
    [
        operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
        operator.matmul, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
    ],
)  # fmt: skip
def test_operators_with_a_numpy_array_on_either_side_give_nnc_arrays(op: Any) -> None:
    for left, right in ((X, A), (A, X), (X, X), (np.float64(2), X[0]), (X[0], np.float64(2))):
        if op is operator.matmul and np.ndim(left) == 0:
            continue
        result = op(left, right)
        assert isinstance(result, nnc.Array)
        np.testing.assert_allclose(result, op(np.asarray(left), np.asarray(right)), rtol=1e-6)


@pytest.mark.parametrize("op", [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift])
def test_bitwise_operators(op: Any) -> None:
    x, y = nnp.asarray([5, 6]), np.array([1, 2])
    for left, right in ((x, y), (y, x), (x, 2), (2, x)):
        result = op(left, right)
        assert isinstance(result, nnc.Array)
        np.testing.assert_array_equal(result, op(np.asarray(left), np.asarray(right)))


def test_unary_operators_divmod_and_round() -> None:
    x = nnp.asarray([-1.5, 2.5])
    assert (-x).tolist() == [1.5, -2.5]
    assert (+x) is x
    assert abs(x).tolist() == [1.5, 2.5]
    assert [v.tolist() for v in divmod(x, 2)] == [[-1, 1], [0.5, 0.5]]
    assert [v.tolist() for v in divmod(5.0, x)] == [[-4, 2], [-1, 0]]
    assert round(x).tolist() == [-2, 2]
    assert float(round(nnp.asarray(2.718), 1)) == pytest.approx(2.7)
    assert (~nnp.asarray([True, False])).tolist() == [False, True]
    assert (~nnp.asarray([0, 1])).tolist() == [-1, -2]


def test_functions_of_numpy_take_nnc_arrays() -> None:
    assert isinstance(np.sin(X), np.ndarray)
    np.testing.assert_allclose(np.sin(X), np.sin(np.asarray(X)))
    assert np.add.reduce(X) == 6
    assert (
        np.sum(X) == 6
        and np.mean(X) == 2
        and np.max(X) == 3
        and np.argmax(X) == 2
        and np.clip(X, 0, 1).tolist() == [1] * 3
    )
    assert (
        np.reshape(X, (3, 1)).shape == (3, 1) and np.cumsum(X).tolist() == [1, 3, 6] and np.transpose(X).shape == (3,)
    )
    assert np.std(X) == pytest.approx(np.std([1, 2, 3])) and np.round(X).tolist() == [1, 2, 3] and np.prod(X) == 6
    assert nnc.grad(np.sum)(X).tolist() == [1, 1, 1]
    assert np.add(A, X, out=np.zeros(3)).tolist() == [5, 7, 9]
    total = np.zeros(3)
    total += X
    assert total.tolist() == [1, 2, 3]
    assert np.stack([X, X]).shape == (2, 3)
    assert list(A[nnp.asarray([2, 0])]) == [6, 4]
    assert math.sqrt(nnp.asarray(4.0)) == 2


def test_a_function_of_numpy_on_a_traced_value_names_the_fix() -> None:
    with pytest.raises(TraceError, match="not known while the function is traced"):
        nnc.compile(lambda x: np.sin(x))(X)
    with pytest.raises(TraceError, match=r"use nnp\.sin\(x\)"):
        nnc.grad(lambda x: np.sin(x))(1.0)


def test_conversion_to_numpy_with_dtype_and_copy() -> None:
    assert np.asarray(X, dtype="float64").dtype == np.float64
    assert np.asarray(X, copy=False).tolist() == [1, 2, 3]
    assert np.array(X, copy=True).flags.writeable
    with pytest.raises(ValueError, match="copy"):
        np.asarray(X, dtype="float64", copy=False)


def test_dlpack_goes_both_ways_without_a_copy() -> None:
    out = np.from_dlpack(X)
    assert np.shares_memory(out, np.asarray(X))
    back = nnc.asarray(np.from_dlpack(nnp.arange(4)))
    assert back.tolist() == [0, 1, 2, 3]
    assert X.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "float64", "complex64"])
def test_pickle_copy_and_deepcopy(dtype: str) -> None:
    x = nnp.asarray([[0, 1]], dtype=dtype)
    for twin in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x), copy.deepcopy({"k": [x]})["k"][0]):
        assert twin is not x
        assert (twin.spec, twin.weak) == (x.spec, x.weak)
        np.testing.assert_array_equal(twin, x)
    assert pickle.loads(pickle.dumps(nnp.asarray(2.0).as_weak())).weak


# -- as a Python value -------------------------------------------------------------------------------------------------


def test_one_element_is_a_python_number() -> None:
    for x in (nnp.asarray(2.0), nnp.asarray([2.0]), nnp.asarray([[2]])):
        assert (bool(x), int(x), float(x), complex(x), x.item()) == (True, 2, 2.0, 2 + 0j, 2)
    assert [1, 2, 3][nnp.asarray(1)] == 2
    assert list(range(nnp.asarray(3))) == [0, 1, 2]
    assert X.item(1) == 2
    assert isinstance(nnp.asarray(2).item(), int)


@pytest.mark.parametrize("convert", [bool, int, float, complex, operator.index, lambda x: x.item()])
@pytest.mark.parametrize("shape", [(2,), (0,)])
def test_several_or_no_elements_are_no_number(convert: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentTypeError, match=r"float32\[[02]\]"):
        convert(nnp.ones(shape))


def test_only_integers_are_an_index() -> None:
    for x in (nnp.asarray(1.0), nnp.asarray([1]), nnp.asarray(True)):
        with pytest.raises(ArgumentTypeError, match="0-d integer"):
            operator.index(x)


def test_the_ends_of_an_integer_dtype_can_be_listed() -> None:
    assert nnp.asarray([-128, 127], dtype="int8").tolist() == [-128, 127]
    assert nnp.asarray([-128.5, 127.5], dtype="int8").tolist() == [-128, 127]
    assert nnp.asarray([2**63 - 1, -(2**63)], dtype="int64").tolist() == [2**63 - 1, -(2**63)]
    assert nnp.asarray([2**63 - 1], dtype="uint64").tolist() == [2**63 - 1]
    assert nnp.asarray([], dtype="int8").shape == (0,)


def test_length_iteration_and_membership() -> None:
    x = nnp.asarray([[1, 2], [3, 4]])
    assert len(x) == 2
    assert [row.tolist() for row in x] == [[1, 2], [3, 4]]
    _, b = x
    assert b.tolist() == [3, 4]
    assert [row.tolist() for row in reversed(x)] == [[3, 4], [1, 2]]
    assert sum(X) == 6
    assert 3 in x and 5 not in x and None not in x and "3" not in x
    assert nnp.asarray([3, 4]) in x
    for f in (len, iter, list):
        with pytest.raises(ArgumentTypeError, match="0-d"):
            f(nnp.asarray(1.0))


def test_comparison_with_other_objects_follows_python() -> None:
    assert (X == None) is False  # noqa: E711
    assert (X != None) is True  # noqa: E711
    assert (X == "text") is False
    assert (None == X) is False  # noqa: E711, SIM300
    assert (X == {}) is False
    for op in (operator.lt, operator.add, operator.pow, operator.and_):
        for other in (None, "text", {}, object()):
            with pytest.raises(TypeError):
                op(X, other)
            with pytest.raises(TypeError):
                op(other, X)


def test_arrays_have_no_hash() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(X)
    with pytest.raises(TypeError, match="unhashable"):
        {X}  # noqa: B018


# -- text --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (nnp.asarray([1.0, 2.5]), "Array([1. , 2.5], dtype=float32)"),
        (nnp.asarray(3), "Array(3, dtype=int64)"),
        (nnp.asarray([1.5, 2.0], dtype="bfloat16"), "Array([1.5, 2. ], dtype=bfloat16)"),
        (nnp.zeros((0,)), "Array([], dtype=float32)"),
        (nnp.zeros((0, 3)), "Array([], shape=(0, 3), dtype=float32)"),
        (nnp.asarray([True]), "Array([ True], dtype=bool)"),
        (nnp.asarray([[1, 2], [3, 4]]), "Array([[1, 2],\n       [3, 4]], dtype=int64)"),
    ],
)
def test_repr(x: Any, text: str) -> None:
    assert repr(x) == text


def test_big_and_donated_arrays_have_a_short_repr() -> None:
    assert "..." in repr(nnp.ones(5000)) and len(repr(nnp.ones((300, 300)))) < 1000
    x = nnp.ones(2)
    x.delete()
    assert repr(x) == "Array(<donated>, float32[2])"
    for use in (str, np.asarray, lambda v: v + 1, bool, copy.deepcopy, pickle.dumps, lambda v: v.tolist()):
        with pytest.raises(NncError, match="donated"):
            use(x)
    assert x.shape == (2,)


def test_formatting() -> None:
    assert f"{nnp.asarray(2.5):.2f} {nnp.asarray([3]):>3d} {X} {X!r}" == f"2.50   3 [1. 2. 3.] {X!r}"
    assert "float32[3]" in nnc.make_graph(lambda x: (f"{x:.2f}", x)[1])(X).__str__()


# -- asarray -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.5, "float32"), (1, "int64"), (True, "bool"), (1j, "complex64"), ([1.0], "float32"), ([1], "int64"), ([], "float32"),
        (np.ones(1), "float64"), (np.float16(1), "float16"), (np.ones(1, "u2"), "uint16"), (nnp.ones(1, "bfloat16"), "bfloat16"),
        (range(2), "int64"), ([[1, 2.0]], "float32"), (np.ones(1, ">i4"), "int32"), ([X, X], "float32"),
    ],
)  # fmt: skip
def test_asarray_keeps_dtypes_and_gives_lists_the_defaults(value: Any, dtype: str) -> None:
    x = nnc.asarray(value)
    assert isinstance(x, nnc.Array)
    assert x.dtype.name == dtype
    assert not x.weak
    np.testing.assert_array_equal(x, np.asarray(value))
    assert nnc.asarray(value, dtype="complex128").dtype == nnp.complex128


def test_asarray_shares_memory_unless_told_otherwise() -> None:
    source = np.array([1.0, 2.0])
    assert np.shares_memory(np.asarray(nnc.asarray(source)), source)
    assert np.shares_memory(np.asarray(nnc.asarray(source, copy=False)), source)
    assert not np.shares_memory(np.asarray(nnc.asarray(source, copy=True)), source)
    assert not np.shares_memory(np.asarray(nnc.asarray(source, "float32")), source)
    assert source.flags.writeable
    assert nnc.asarray(X) is X
    assert nnc.asarray(X, copy=True) is not X
    assert nnc.asarray(X, "float32", copy=False) is X
    for value, dtype in ((source, "float32"), ([1.0], None), (1.0, None)):
        with pytest.raises(ArgumentError, match="copy"):
            nnc.asarray(value, dtype, copy=False)


def test_asarray_converts_like_astype() -> None:
    assert nnc.asarray([1.7, -1.7], "int32").tolist() == [1, -1]
    assert nnc.asarray(np.array([np.nan, 1e300]), "float32").tolist()[1] == np.inf
    assert nnc.asarray(np.array([0, 2]), bool).tolist() == [False, True]
    nnc.asarray(np.array([np.nan]), "int32")  # NaN may become any integer, but gives no warning
    with pytest.raises(DTypeError, match="imaginary"):
        nnc.asarray(1j * np.ones(1), "float32")
    with pytest.raises(DTypeError, match="float8"):
        nnc.asarray(1.0, "float8")
    with pytest.raises(DTypeError, match="does not fit"):
        nnc.asarray(300, "int8")
    with pytest.raises(ShapeError, match="ragged"):
        nnc.asarray([[1], [1, 2]])
    with pytest.raises(UnsupportedError, match="no device"):
        nnc.asarray(1.0, device="cuda")


def test_asarray_of_a_weak_array_is_strong() -> None:
    weak = nnp.log(2.0)
    for x in (nnc.asarray(weak), nnc.asarray(weak, "float32"), nnc.compile(nnc.asarray)(weak)):
        assert not x.weak and x.spec.dtype == nnp.float32


def test_asarray_passes_tracers_through() -> None:
    assert float(nnc.grad(lambda x: nnc.asarray(x, "float64") * 2)(1.0)) == 2
    assert nnc.compile(lambda x: nnc.asarray([x, x]))(1.0).shape == (2,)


# -- attributes --------------------------------------------------------------------------------------------------------


def test_facts_about_an_array() -> None:
    x = nnp.ones((2, 3), "float64")
    assert (x.shape, x.ndim, x.size, x.nbytes, x.itemsize, x.device) == ((2, 3), 2, 6, 48, 8, "cpu")
    assert x.T.shape == x.mT.shape == (3, 2)
    assert x.to_device("cpu") is x
    assert x.block_until_ready() is x
    assert x.__array_namespace__() is nnp
    assert x.real is x
    assert x.imag.tolist() == [[0] * 3] * 2
    z = nnp.asarray([1 + 2j])
    assert (z.real.tolist(), z.imag.tolist()) == ([1], [2])
    with pytest.raises(ArgumentTypeError, match="at least two axes"):
        X.mT  # noqa: B018


def test_functions_of_nnc_numpy_are_methods() -> None:
    assert X.sum() == 6 and X.reshape(3, 1).shape == (3, 1) and X.astype("int32").dtype == nnp.int32

    def doubled_for_this_test(x: Any) -> Any:
        return x * 2

    array_method(doubled_for_this_test)
    try:
        assert X.doubled_for_this_test().tolist() == [2, 4, 6]
        assert nnc.compile(lambda x: x.doubled_for_this_test())(X).tolist() == [2, 4, 6]
    finally:
        delattr(nnc.array.operators.ArrayMethods, "doubled_for_this_test")


def test_33_axes() -> None:
    x = nnp.ones((1,) * 32 + (2,))
    assert (x + x).shape == x.shape
    assert x.T.shape == (2,) + (1,) * 32


def test_the_methods_that_type_checkers_see_are_those_that_arrays_have() -> None:
    source = ast.parse(inspect.getsource(NamedMethods))
    seen = {node.targets[0].id: ast.unparse(node.value) for node in ast.walk(source) if isinstance(node, ast.Assign)}
    del seen["__slots__"]
    functions = {name: f for name, f in vars(ArrayMethods).items() if inspect.isfunction(f)}
    added = {name: f for name, f in functions.items() if inspect.unwrap(f).__module__.startswith("nnc.numpy.")}
    assert seen == {name: f"{f.__module__.rpartition('.')[2]}.{f.__name__}" for name, f in added.items()}
