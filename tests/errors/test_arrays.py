"""Mistakes with arrays: shapes, axes, dtypes, indices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import (
    ArgumentError,
    ArgumentTypeError,
    AxisError,
    DTypeError,
    IndexingError,
    NumberRangeError,
    OutOfBoundsError,
    ShapeError,
    UnsupportedError,
)
from tests.errors.reports import reports

# -- shapes ------------------------------------------------------------------------------------------------------------


def test_matmul_of_sizes_that_do_not_fit() -> None:
    x, w = nnp.ones((32, 128)), nnp.ones((64, 10))
    with reports(ShapeError, "matmul", "128", "64", "float32[32,128]", "float32[64,10]"):
        x @ w


def test_adding_shapes_that_do_not_broadcast() -> None:
    x, y = nnp.ones((3, 4)), nnp.ones(3)
    with reports(ShapeError, "add", "(3, 4)", "(3,)", "float32[3,4]", "float32[3]"):
        x + y


def test_summing_over_an_axis_that_does_not_exist() -> None:
    x = nnp.ones((2, 3))
    with reports(AxisError, "sum", "axis 2", "2 axes"):
        nnp.sum(x, axis=2)


def test_reshape_to_another_number_of_elements() -> None:
    x = nnp.ones((2, 3))
    with reports(ShapeError, "reshape", "(4, 2)", "float32[2,3]"):
        x.reshape(4, 2)


def test_reshape_with_two_unknown_sizes() -> None:
    x = nnp.ones((2, 3))
    with reports(ShapeError, "reshape", "-1", "float32[2,3]"):
        nnp.reshape(x, (-1, -1))


def test_concatenating_arrays_that_differ_on_another_axis() -> None:
    x, y = nnp.ones((2, 3)), nnp.ones((2, 4))
    with reports(ShapeError, "concat", "float32[2,3]", "float32[2,4]"):
        nnp.concatenate([x, y], axis=0)


def test_stacking_arrays_of_different_shapes() -> None:
    x, y = nnp.ones(3), nnp.ones(4)
    with reports(ShapeError, "stack", "3", "4"):
        nnp.stack([x, y])


def test_transposing_with_an_axis_named_twice() -> None:
    x = nnp.ones((2, 3))
    with reports(ShapeError, "transpose", "(0, 0)"):
        nnp.transpose(x, (0, 0))


def test_squeezing_an_axis_that_is_not_of_size_1() -> None:
    x = nnp.ones((2, 3))
    with reports(ShapeError, "squeeze", "axis 1", "float32[2,3]"):
        nnp.squeeze(x, axis=1)


def test_broadcasting_to_a_smaller_shape() -> None:
    x = nnp.ones((2, 3))
    with reports(ShapeError, "broadcast_to", "float32[2,3]", "(3,)"):
        nnp.broadcast_to(x, (3,))


def test_einsum_with_a_subscript_for_an_axis_that_is_not_there() -> None:
    x = nnp.ones((2, 3))
    with reports(ArgumentError, "einsum", "ijk->ij", "operand 0 has 2 axes", "3"):
        nnp.einsum("ijk->ij", x)


def test_einsum_with_one_letter_for_two_sizes() -> None:
    x, y = nnp.ones((2, 3)), nnp.ones((4, 5))
    with reports(ShapeError, "einsum", "'j'", "3", "4"):
        nnp.einsum("ij,jk->ik", x, y)


def test_einsum_with_a_character_that_is_no_letter() -> None:
    x = nnp.ones((2, 3))
    with reports(ArgumentError, "einsum", "i;j"):
        nnp.einsum("i;j->i", x)


def test_matrix_transpose_of_a_vector() -> None:
    x = nnp.ones(3)
    with reports(ArgumentTypeError, "mT", "float32[3]"):
        _ = x.mT


def test_maximum_of_an_empty_array() -> None:
    x = nnp.ones((0, 3))
    with reports(ShapeError, "max", "0"):
        nnp.max(x, axis=0)


# -- values that Python asks for ---------------------------------------------------------------------------------------


def test_an_array_of_several_elements_as_a_condition() -> None:
    x = nnp.ones(3)
    with reports(ArgumentTypeError, "bool", "3 elements", "bool[3]"):
        if x > 0:
            pass


def test_an_array_of_several_elements_as_a_number() -> None:
    x = nnp.ones((2, 2))
    with reports(ArgumentTypeError, "float", "4 elements", "float32[2,2]"):
        float(x)


def test_the_length_of_a_number() -> None:
    x = nnp.sum(nnp.ones(3))
    with reports(ArgumentTypeError, "len", "0-d"):
        len(x)


def test_iterating_over_a_number() -> None:
    x = nnp.sum(nnp.ones(3))
    with reports(ArgumentTypeError, "iter", "0-d"):
        list(x)


def test_assigning_to_an_element() -> None:
    x = nnp.ones(3)
    with reports(ArgumentTypeError, "immutable", "float32[3]", "x.at[index].set(value)"):
        x[0] = 2.0


# -- dtypes and other values -------------------------------------------------------------------------------------------


def test_a_ragged_list() -> None:
    with reports(ShapeError, "asarray", "ragged"):
        nnc.asarray([[1.0, 2.0], [3.0]])


def test_an_array_of_strings() -> None:
    with reports(ArgumentTypeError, "['cat', 'dog']", "no numbers"):
        nnp.asarray(["cat", "dog"])


def test_a_set_where_an_array_is_due() -> None:
    with reports(ArgumentTypeError, "set", "{1, 2}"):
        nnp.sum({1, 2})


def test_none_where_an_array_is_due() -> None:
    with reports(ArgumentTypeError, "exp", "None"):
        nnp.exp(None)


@pytest.mark.parametrize(
    ("value", "dtype"), [(np.array([object()]), "object"), (np.array(["2024-01-01"], "datetime64[D]"), "datetime64")]
)
def test_a_numpy_array_of_a_dtype_that_nnc_does_not_have(value: np.ndarray, dtype: str) -> None:
    with reports(DTypeError, dtype, "float32"):
        nnc.asarray(value)


def test_a_dtype_name_that_does_not_exist() -> None:
    with reports(DTypeError, "float8", "nnp.float32"):
        nnp.zeros(3, dtype="float8")


def test_uint64_with_int64() -> None:
    x, y = nnp.ones(2, dtype="uint64"), nnp.ones(2, dtype="int64")
    with reports(DTypeError, "uint64", "int64", "uint64[2]"):
        x + y


def test_a_number_too_large_for_the_dtype_of_the_array() -> None:
    x = nnp.ones(2, dtype="int8")
    with reports(NumberRangeError, "300", "int8"):
        x + 300


def test_a_python_integer_that_no_dtype_holds() -> None:
    with reports(NumberRangeError, "asarray", str(2**70), "int64"):
        nnc.asarray(2**70)


def test_a_number_that_its_dtype_does_not_hold() -> None:
    with reports(NumberRangeError, "asarray", "300", "int8"):
        nnc.asarray(300, dtype="int8")


@pytest.mark.parametrize(
    ("numbers", "dtype", "shown"),
    [
        ([1, 300], "int8", "300"),
        ([[-1]], "uint8", "-1"),
        ([3e9], "int32", "3000000000.0"),
        ((float("nan"),), "int64", "nan"),
    ],
)
def test_a_listed_number_that_its_dtype_does_not_hold(numbers: object, dtype: str, shown: str) -> None:
    with reports(DTypeError, "asarray", shown, dtype):
        nnc.asarray(numbers, dtype=dtype)


def test_a_complex_list_as_floats() -> None:
    with reports(DTypeError, "asarray", "complex128[1]", "float32", "nnp.real"):
        nnc.asarray([1j], dtype="float32")


def test_an_unknown_dtype_of_a_shape_without_a_value() -> None:
    with reports(DTypeError, "ShapeDtypeStruct", "'flaot32'"):
        nnc.ShapeDtypeStruct((2,), "flaot32")


def test_a_shape_that_no_array_has() -> None:
    for size in (-1, 2.5, 2**70):
        with reports(ShapeError, "ShapeDtypeStruct", repr(size)):
            nnc.ShapeDtypeStruct((3, size), "float32")


def test_complex_to_float_drops_the_imaginary_part_silently_nowhere() -> None:
    x = nnp.asarray([1 + 2j])
    with reports(DTypeError, "complex64", "float32", "real"):
        x.astype("float32")


def test_bitwise_and_of_floats() -> None:
    x = nnp.ones(2)
    with reports(DTypeError, "bitwise_and", "float32"):
        x & x


def test_a_negative_power_of_integers() -> None:
    x = nnp.asarray([1, 2])
    with reports(DTypeError, "-1", "int64[2]"):
        x**-1


def test_ordering_complex_numbers() -> None:
    x = nnp.asarray([1j, 2j])
    with reports(DTypeError, "less", "complex64"):
        x < x  # noqa: B015


def test_a_device_that_does_not_exist() -> None:
    x = nnp.ones(2)
    with reports(UnsupportedError, "cuda:7"):
        x.to_device("cuda:7")


def test_the_pytorch_name_of_an_axis() -> None:
    x = nnp.ones((2, 3))
    with reports(ArgumentTypeError, "sum", "dim", "axis"):
        nnp.sum(x, dim=1)


def test_integers_to_negative_powers() -> None:
    x, y = np.array([2, 3]), np.array([1, -2])
    with reports(ArgumentError, "pow", "the power -2 is no integer", "astype"):
        nnp.power(x, y)
    with reports(ArgumentError, "pow", "the power -2 is no integer", at="x**y"):
        nnc.compile(lambda x, y: x**y)(x, y)


def test_single_numbers_for_weights_and_matrices() -> None:
    with reports(ShapeError, "conv_transpose", "the weight has 0 axes", "(I, O / groups, *kernel)"):
        nnc.nn.conv_transpose(nnp.ones((1, 2, 3, 3)), 1.0)
    with reports(ShapeError, "conv", "the weight has 2 axes", "(O, C / groups, *kernel)"):
        nnc.nn.conv(nnp.ones((1, 2, 3, 3)), nnp.ones((2, 2)))
    with reports(ShapeError, "multi_dot", "array 0 has 0 axes"):
        nnp.linalg.multi_dot([1.0, 2.0])


def test_one_hot_rows_of_no_integer_size_or_along_no_axis() -> None:
    with reports(ArgumentTypeError, "one_hot", "num_classes is 2.5 (float)"):
        nnc.nn.one_hot([0, 1], 2.5)
    with reports(AxisError, "one_hot", "axis 2 is out of range"):
        nnc.nn.one_hot([0, 1], 3, axis=2)


# -- indices -----------------------------------------------------------------------------------------------------------


def test_an_index_out_of_range() -> None:
    x = nnp.ones((3, 2))
    with reports(OutOfBoundsError, "index 5", "axis 0", "size 3"):
        x[5]


def test_an_index_array_out_of_range() -> None:
    x, i = nnp.ones((3, 2)), nnp.asarray([0, 7])
    with reports(OutOfBoundsError, "index 7", "axis 0", "size 3"):
        x[i]


def test_more_indices_than_axes() -> None:
    x = nnp.ones((3, 2))
    with reports(IndexingError, "3 indices", "2 axes", "float32[3,2]"):
        x[0, 0, 0]


def test_a_float_as_an_index() -> None:
    x = nnp.ones(3)
    with reports(IndexingError, "1.0", "float"):
        x[1.0]


def test_a_string_as_an_index() -> None:
    x = nnp.ones(3)
    with reports(IndexingError, "'a'", "str"):
        x["a"]


def test_a_slice_with_step_0() -> None:
    x = nnp.ones(3)
    with reports(ArgumentError, "step", "0"):
        x[::0]


def test_a_mask_of_another_shape() -> None:
    x, mask = nnp.ones((3, 2)), nnp.asarray([True, False])
    with reports(IndexingError, "(2,)", "(3,)", "float32[3,2]"):
        x[mask]


def test_updating_with_values_that_do_not_fit() -> None:
    x, v = nnp.ones((3, 2)), nnp.ones(5)
    with reports(ShapeError, "(5,)"):
        x.at[0].set(v)


def test_an_index_mode_that_does_not_exist() -> None:
    x = nnp.ones(3)
    with reports(ArgumentError, "mode", "'clamp'"):
        x.at[5].get(mode="clamp")


def test_an_argument_that_goes_by_place_is_named_as_such():
    x = nnp.ones((2, 3))
    for call, words in [
        (lambda: nnp.tile(x, reps=2), "pass x, repetitions by place"),
        (lambda: nnp.sum(a=x), "arguments are axis, dtype.*pass x by place"),
        (lambda: nnp.searchsorted(a=x, v=2), "side, sorter; pass x1, x2 by place"),
    ]:
        with pytest.raises(ArgumentTypeError, match=words):
            call()


# -- flags -------------------------------------------------------------------------------------------------------------

NO_FLAG = np.array([1, 0])


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("sum: keepdims", lambda x: nnp.sum(x, axis=0, keepdims=NO_FLAG)),
        ("sum: keepdims", lambda x: x.sum(keepdims=nnp.asarray(NO_FLAG))),
        ("var: keepdims", lambda x: nnp.var(x, keepdims=NO_FLAG)),
        ("argmax: keepdims", lambda x: nnp.argmax(x, keepdims=NO_FLAG)),
        ("unique: return_index", lambda x: nnp.unique(x, NO_FLAG)),
        ("linspace: endpoint", lambda x: nnp.linspace(0, 1, 3, NO_FLAG)),
        ("svd: full_matrices", lambda x: nnp.linalg.svd(x, full_matrices=NO_FLAG)),
        ("array: copy", lambda x: nnp.array(x, copy=NO_FLAG)),
        ("average: returned", lambda x: nnp.average(x, returned=[True])),
        ("min: keepdims", lambda x: nnp.min(x, keepdims="yes")),
        ("scan: reverse", lambda x: nnc.scan(lambda c, row: (c, row), 0.0, x, reverse=NO_FLAG)),
        ("grad: has_aux", lambda x: nnc.grad(nnp.sum, has_aux=NO_FLAG)(x)),
        ("jvp: has_aux", lambda x: nnc.jvp(nnp.sum, (x,), (x,), NO_FLAG)),
        ("jacrev: holomorphic", lambda x: nnc.jacrev(nnp.sum, holomorphic=NO_FLAG)(x)),
    ],
)
def test_a_flag_that_is_no_bool(name: str, call: Callable[[nnc.Array], object]) -> None:
    with reports(ArgumentTypeError, name, "not a bool", "=True"):
        call(nnp.ones((2, 3)))


@pytest.mark.parametrize("flag", [True, 1, np.bool_(True), np.array(True), nnp.asarray(True)])
def test_one_truth_value_is_a_flag(flag: object) -> None:
    assert nnp.sum(nnp.ones((2, 3)), keepdims=flag).shape == (1, 1)
    assert nnp.sum(nnp.ones((2, 3)), keepdims=None).shape == ()


def test_counting_a_negative_number() -> None:
    with reports(ArgumentError, "bincount: element -1 is negative", "int64[2]"):
        nnp.bincount(np.array([1, -1]), length=4)


def test_a_length_below_zero() -> None:
    with reports(ArgumentError, "bincount: length is -1"):
        nnp.bincount(np.array([1]), length=-1)


def test_bins_that_neither_rise_nor_fall() -> None:
    with reports(ArgumentError, "digitize: bins neither rise nor fall", "float64[3]"):
        nnp.digitize(np.ones(2), np.array([1.0, 3.0, 2.0]))


def test_a_histogram_of_nan() -> None:
    with reports(ArgumentError, "histogram: the range of the bins is from nan to nan"):
        nnp.histogram(np.array([np.nan]))


def test_a_place_that_the_shape_does_not_have() -> None:
    with reports(OutOfBoundsError, "unravel_index: index 6 is out of range for size 6"):
        nnp.unravel_index(6, (2, 3))


def test_listed_numbers_that_the_dtype_does_not_hold() -> None:
    with reports(DTypeError, "asarray: the number nan does not fit into int32"):
        nnp.asarray([1.0, float("nan")], dtype="int32")


@pytest.mark.parametrize("name", ["zeros", "ones", "empty"])
def test_a_shape_given_as_several_arguments(name: str) -> None:
    with reports(DTypeError, f"{name}: 3 is passed as dtype", f"{name}((2, 3))"):
        getattr(nnp, name)(2, 3)


def test_arguments_behind_a_shape_that_are_taken_for_its_dtype() -> None:
    with reports(DTypeError, "full: 4 is passed as dtype", "a tuple as the shape"):
        nnp.full(2, 3, 4)  # type: ignore[arg-type]
    with reports(DTypeError, "0.0 is passed as dtype", "by name"):
        nnc.random.uniform(nnc.random.key(0), (2,), 0.0, 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("concatenate", "concatenate([x, y])"), ("stack", "stack([x, y])"), ("max", "nnp.maximum(x, y)"),
        ("min", "nnp.minimum(x, y)"), ("sum", "nnp.add(x, y)"), ("mean", "a Python integer for axis"),
    ],
)  # fmt: skip
def test_a_second_array_where_the_axis_belongs(name: str, fix: str) -> None:
    with reports(ArgumentTypeError, f"{name}: axis is an array of shape (2,)", fix):
        getattr(nnp, name)(nnp.ones(2), nnp.ones(2))


def test_an_axis_of_a_softmax_that_does_not_exist() -> None:
    for name in ("softmax", "log_softmax"):
        with reports(AxisError, f"{name}: axis 2"):
            getattr(nnc.nn, name)(nnp.ones((2, 2)), axis=2)
