from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base import dtypes
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError
from nnc.graph import GraphBuilder, structural_hash, to_json


def test_limits_of_floats_are_python_numbers():
    for name in ("float16", "float32", "float64"):
        ours, theirs = nnp.finfo(name), np.finfo(name)
        assert (ours.bits, ours.eps, ours.max, ours.min) == (theirs.bits, theirs.eps, theirs.max, theirs.min)
        assert ours.tiny == ours.smallest_normal == theirs.smallest_normal
        assert type(ours.eps) is float
    assert nnp.finfo(nnp.bfloat16).max == float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    assert nnp.finfo(nnp.complex128).dtype == nnp.float64
    assert nnp.finfo(nnp.ones(2)).bits == 32


def test_limits_of_integers():
    assert (nnp.iinfo("int8").min, nnp.iinfo("uint64").max, nnp.iinfo(int).bits) == (-128, 2**64 - 1, 64)


@pytest.mark.parametrize(
    ("dtype", "kind", "answer"),
    [
        ("float32", "real floating", True),
        ("bfloat16", "numeric", True),
        ("bool", "numeric", False),
        ("int8", "signed integer", True),
        ("uint8", "signed integer", False),
        ("uint8", ("bool", "integral"), True),
        ("float32", "float32", True),
        ("float32", np.float64, False),
    ],
)
def test_kinds_of_dtypes(dtype, kind, answer):
    assert nnp.isdtype(dtype, kind) is answer


def test_promotion_of_operands_and_dtypes():
    assert nnp.result_type(nnp.int8, nnp.uint8) == nnp.int16
    assert nnp.result_type(np.ones(1, np.float16), 1.5) == nnp.float16
    assert nnp.result_type(1, 2.0) == nnp.float32
    assert nnp.result_type(np.float64(1), np.ones(1, np.float32)) == nnp.float32
    assert nnp.result_type(np.asarray(1.0), np.ones(1, np.float32)) == nnp.float64
    assert nnp.promote_types("float16", nnp.bfloat16) == nnp.float32


def test_casts_that_lose_nothing_are_allowed():
    assert nnp.can_cast("int8", "int16")
    assert nnp.can_cast(nnp.ones(1), "float64")
    assert not nnp.can_cast("int16", "int8")
    assert not nnp.can_cast("float32", "int64")
    assert not nnp.can_cast("uint64", "int64")


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nnp.finfo("int8"), DTypeError, "finfo: int8 is no float dtype"),
        (lambda: nnp.iinfo("float32"), DTypeError, "iinfo: float32 is no integer dtype"),
        (lambda: nnp.isdtype("int8", "number"), ArgumentError, "isdtype: there is no kind 'number'"),
        (lambda: nnp.result_type("uint64", "int64"), DTypeError, "result_type: no integer dtype holds"),
        (lambda: nnp.result_type("text"), DTypeError, "result_type: "),
        (lambda: nnp.result_type(), ArgumentError, "result_type: there is no operand"),
    ],
)
def test_a_mistake_is_answered_with_the_functions_name(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_constants_are_pythons():
    assert (nnp.pi, nnp.e, nnp.inf, nnp.newaxis) == (np.pi, np.e, np.inf, None)
    assert np.isnan(nnp.nan)


def test_abstract_kinds_are_asked_for_as_in_numpy():
    for dtype in ("int8", "uint64", "float32", "complex64", "bool"):
        for kind in (
            np.number,
            np.integer,
            np.signedinteger,
            np.unsignedinteger,
            np.inexact,
            np.floating,
            np.complexfloating,
        ):
            assert nnp.issubdtype(getattr(nnp, dtype), getattr(nnp, kind.__name__)) == np.issubdtype(dtype, kind)
    assert nnp.issubdtype(nnp.ones(1, "bfloat16").dtype, nnp.floating)
    assert not nnp.issubdtype(nnp.bfloat16, nnp.integer)
    assert nnp.issubdtype(nnp.floating, nnp.inexact)
    assert nnp.issubdtype("float32", nnp.float32) and not nnp.issubdtype(nnp.bfloat16, nnp.float32)
    assert (nnp.int_, nnp.float_, nnp.complex_) == (nnp.int64, nnp.float32, nnp.complex64)
    assert (nnp.half, nnp.single, nnp.double, nnp.csingle, nnp.cdouble) == ("f2", "f4", "f8", "c8", "c16")
    assert nnp.dtype("float32") == nnp.float32


def test_arrays_and_tracers_are_of_one_class():
    assert isinstance(nnp.ones(2), nnp.ndarray)
    assert nnc.compile(lambda x: x * isinstance(x, nnp.ndarray))(3.0) == 3
    assert not isinstance(np.ones(2), nnp.ndarray)
    assert nnp.iterable(nnp.ones(2)) and not nnp.iterable(3)


def test_arrays_are_printed_with_numpys_options():
    x = nnp.asarray([1 / 3, 2.0], dtype="float64")
    assert nnp.array_repr(x) == repr(x) and nnp.array_str(x) == str(x)
    with nnp.printoptions(precision=2):
        assert nnp.array_repr(x) == "Array([0.33, 2.  ], dtype=float64)"
        assert nnp.get_printoptions()["precision"] == 2
    before = nnp.get_printoptions()
    nnp.set_printoptions(precision=1)
    assert repr(x) == "Array([0.3, 2. ], dtype=float64)"
    nnp.set_printoptions(**before)
    assert nnp.array2string(np.ones(2)) == "[1. 1.]"


# -- dtypes that are called ----------------------------------------------------------------------------------------------

NAMES = [dtype.name for dtype in dtypes.ALL if dtype.name != "bool"] + ["bool_"]


@pytest.mark.parametrize("name", NAMES)
def test_a_dtype_that_is_called_converts(name: str) -> None:
    kind, dtype = getattr(nnp, name), dtypes.as_dtype(name.rstrip("_"))
    one = kind(1)
    assert isinstance(one, nnc.Array) and one.shape == () and one.dtype == dtype and one == 1 and not one.weak
    assert kind().dtype == dtype and kind() == 0
    np.testing.assert_array_equal(kind([0, 1]), np.asarray([0, 1], dtype))
    assert kind(np.ones((2, 3), np.int8)).dtype == dtype and nnc.compile(kind)(1).dtype == dtype


@pytest.mark.parametrize("name", NAMES)
def test_a_dtype_that_can_be_called_stands_for_the_dtype_wherever_one_is_taken(name: str) -> None:
    kind, dtype = getattr(nnp, name), dtypes.as_dtype(name.rstrip("_"))
    assert (
        kind == dtype
        and dtype == kind
        and kind == getattr(nnp, name)
        and hash(kind) == hash(dtype)
        and {dtype: 1}[kind]
    )
    assert (
        kind != nnp.dtype("S1")
        and kind != 3
        and (kind.name, kind.itemsize, kind.kind) == (dtype.name, dtype.itemsize, dtype.kind)
    )
    assert nnp.dtype(kind) == dtype and np.zeros(2, kind).dtype == dtype
    made = (
        nnp.ones(2, kind),
        nnp.ones(2, dtype=kind),
        nnp.asarray([1, 0], dtype=kind),
        nnp.ones(2, np.bool_).astype(kind),
    )
    assert all(x.dtype == dtype and type(x.dtype) is type(dtype) for x in made)
    assert nnp.result_type(kind) == dtype and nnp.promote_types(kind, kind) == dtype and nnp.isdtype(kind, dtype)
    assert nnc.ShapeDtypeStruct((2,), kind) == nnc.ShapeDtypeStruct((2,), dtype)
    assert pickle.loads(pickle.dumps(kind)) == dtype and copy.deepcopy(kind) == dtype
    graphs = []
    for given in (kind, dtype):
        builder = GraphBuilder("f")
        graphs.append(builder.build(builder.add("convert", builder.input((2,), "bool"), dtype=given)))
    assert structural_hash(graphs[0]) == structural_hash(graphs[1]) and to_json(graphs[0]) == to_json(graphs[1])


def test_a_dtype_that_is_called_keeps_gradients_and_refuses_values_that_do_not_fit() -> None:
    slope = nnc.grad(lambda x: nnp.float64(x) ** 2)(np.float32(3))
    assert slope == 6 and slope.dtype == nnp.float32
    with pytest.raises(DTypeError, match="300 does not fit into int8"):
        nnp.int8(300)
    with pytest.raises(ArgumentTypeError, match="not an array or a number"):
        nnp.float32("a")
