from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError

M = np.arange(24.0).reshape(2, 3, 4)
V = np.arange(5)

CASES = [
    ("reshape", (M, (6, -1))),
    ("reshape", (M, -1)),
    ("reshape", (np.zeros((0, 3)), (3, 0))),
    ("ravel", (M,)),
    ("transpose", (M,)),
    ("transpose", (M, (2, 0, 1))),
    ("permute_dims", (M, (1, 0, -1))),
    ("matrix_transpose", (M,)),
    ("moveaxis", (M, 0, -1)),
    ("moveaxis", (M, (0, 1), (2, 0))),
    ("swapaxes", (M, 0, 2)),
    ("expand_dims", (M, 1)),
    ("expand_dims", (M, (0, -1))),
    ("squeeze", (M[:1, :, :1],)),
    ("squeeze", (M[:1], 0)),
    ("atleast_1d", (3,)),
    ("atleast_2d", (V,)),
    ("atleast_3d", (V,)),
    ("atleast_3d", (M[0],)),
    ("atleast_3d", (2.0,)),
    ("broadcast_to", (V, (2, 5))),
    ("broadcast_arrays", (M, M[0], 1)),
    ("concatenate", ([M, M[:1]],)),
    ("concatenate", ([M, M[:, :, :1]], -1)),
    ("concatenate", ([M, V], None)),
    ("concatenate", ([V, M[0, 0]],)),
    ("stack", ([V, V + 1],)),
    ("stack", ([V, V * 2.5], -1)),
    ("hstack", ([V, V],)),
    ("hstack", ([M, M],)),
    ("vstack", ([V, V],)),
    ("vstack", ([M, M],)),
    ("dstack", ([V, V],)),
    ("column_stack", ([V, M.ravel()[:10].reshape(5, 2)],)),
    ("append", (V, [7, 8])),
    ("append", (M, M, 1)),
    ("block", ([[M[0], M[0]], [M[1], M[1]]],)),
    ("block", ([V, 3],)),
    ("split", (M, 3, 1)),
    ("split", (V, [1, 3])),
    ("split", (V, [3, 1, -1, 9])),
    ("array_split", (V, 3)),
    ("array_split", (M, 3, 2)),
    ("hsplit", (M, 3)),
    ("vsplit", (M, 2)),
    ("dsplit", (M, 2)),
    ("unstack", (M,)),
    ("flip", (M,)),
    ("flip", (M, (0, 2))),
    ("fliplr", (M,)),
    ("flipud", (M,)),
    ("rot90", (M,)),
    ("rot90", (M, 2)),
    ("rot90", (M, 3, (1, 2))),
    ("rot90", (M, -3, (2, 0))),
    ("roll", (V, 2)),
    ("roll", (M, (1, -2), (0, 2))),
    ("roll", (M, 7)),
    ("roll", (M, 1, (0, 0))),
    ("tile", (V, 3)),
    ("tile", (M, (2, 1, 2))),
    ("tile", (V, (2, 2))),
    ("tile", (M, 2)),
    ("tile", (V, 0)),
    ("repeat", (V, 2)),
    ("repeat", (M, 3, 1)),
    ("repeat", (V, [0, 1, 2, 0, 3])),
    ("repeat", (M, [2, 1], 0)),
    ("diagonal", (M,)),
    ("diagonal", (M, 1, 1, 2)),
    ("diagonal", (M, -1, 2, 0)),
    ("diagonal", (M, 9)),
    ("trace", (M,)),
    ("trace", (M, 1, 0, 2)),
    ("trace", (V[:, None] * V,)),
]


@pytest.mark.parametrize(("name", "args"), CASES)
def test_a_rearrangement_agrees_with_numpy(name, args, same):
    same(getattr(nnp, name)(*args), getattr(np, name)(*args))


PADS = [(1, {}), ((2, 1), {}), (((1, 2), (0, 3), (2, 2)), {}), (((1, 1), (2, 0), (0, 0)), {"constant_values": 7})]


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap"])
@pytest.mark.parametrize(("width", "kwargs"), PADS)
def test_padding_agrees_with_numpy(mode, width, kwargs, same):
    if mode == "constant" or not kwargs:
        same(nnp.pad(M, width, mode, **kwargs), np.pad(M, width, mode, **kwargs))


def test_padding_wider_than_the_array_goes_on(same):
    for mode in ("reflect", "symmetric", "wrap", "edge"):
        same(nnp.pad(V[:2], (7, 5), mode), np.pad(V[:2], (7, 5), mode))


def test_padding_may_differ_by_side_and_axis(same):
    same(nnp.pad(M[0], 1, constant_values=((1, 2), (3, 4))), np.pad(M[0], 1, constant_values=((1, 2), (3, 4))))
    same(nnp.pad(M[0], {0: (1, 0), -1: 2}), np.pad(M[0], ((1, 0), (2, 2))))


@given(st.lists(st.integers(0, 4), max_size=12))
def test_repeats_of_any_numbers_agree_with_numpy(counts):
    x = np.arange(len(counts))
    assert nnp.repeat(x, np.asarray(counts, dtype=int)).tolist() == np.repeat(x, np.asarray(counts, dtype=int)).tolist()


@given(st.integers(0, 6), st.lists(st.integers(-7, 7), min_size=0, max_size=4))
def test_splits_at_any_places_agree_with_numpy(n, cuts):
    x = np.arange(n)
    for got, want in zip(nnp.split(x, cuts), np.split(x, cuts), strict=True):
        assert got.tolist() == want.tolist()


def test_shapes_are_read_without_computing():
    assert nnp.shape([[1, 2]]) == (1, 2)
    assert nnp.ndim(M) == 3
    assert nnp.size(M) == 24
    assert nnp.size(M, -1) == 4
    assert nnp.broadcast_shapes((2, 1), (3,), ()) == (2, 3)
    assert nnp.isscalar(2.0)
    assert not nnp.isscalar(V)
    assert nnp.iscomplexobj(1j)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nnp.reshape(M, (5, -1)), ShapeError, "reshape: 24 elements do not fit"),
        (lambda: nnp.reshape(M, (5, 5)), ShapeError, "reshape: 24 elements do not fit"),
        (lambda: nnp.transpose(M, (0, 1)), ShapeError, "transpose: .* no permutation"),
        (lambda: nnp.moveaxis(M, (0, 1), 0), ArgumentError, "moveaxis: 2 axes are moved to 1"),
        (lambda: nnp.squeeze(M, 0), ShapeError, "squeeze: axis 0 has size 2"),
        (lambda: nnp.expand_dims(M, 9), ShapeError, "expand_dims: axis 9"),
        (lambda: nnp.broadcast_to(V, (2, 4)), ShapeError, "broadcast_to: shape"),
        (lambda: nnp.broadcast_shapes((2,), (3,)), ShapeError, "broadcast_shapes: shapes"),
        (lambda: nnp.concatenate([]), ArgumentError, "concatenate: there is nothing"),
        (lambda: nnp.concatenate([1, 2]), ShapeError, "concatenate: 0-d arrays"),
        (lambda: nnp.concatenate(3), ArgumentTypeError, "concatenate: the arrays are given as int"),
        (lambda: nnp.concatenate([M, M[0]]), ShapeError, "concatenate: array 1 differs"),
        (lambda: nnp.stack([V, V[1:]]), ShapeError, "stack: shapes differ"),
        (lambda: nnp.stack([np.ones(2, np.uint64), np.ones(2, np.int8)]), DTypeError, "stack: no integer dtype"),
        (lambda: nnp.split(V, 2), ShapeError, "split: axis 0 of size 5 has no 2 equal parts"),
        (lambda: nnp.array_split(V, 0), ArgumentError, "array_split: 0 is no number of parts"),
        (lambda: nnp.roll(M, (1, 2), 0), ArgumentError, "roll: 2 shifts are given for 1 axes"),
        (lambda: nnp.repeat(V, [1, 2]), ArgumentError, "repeat: repeats must be"),
        (lambda: nnp.repeat(V, -1), ArgumentError, "repeat: repeats must be"),
        (lambda: nnp.repeat(V, 2, total_repeat_length=3), ArgumentError, "repeat: the result has 10"),
        (lambda: nnp.pad(V, 1, "mirror"), ArgumentError, "pad: there is no mode 'mirror'"),
        (lambda: nnp.pad(V, -1), ArgumentError, "pad: pad_width -1"),
        (lambda: nnp.pad(V, ((1, 1), (2, 2))), ArgumentError, "pad: pad_width .* does not fit"),
        (lambda: nnp.pad(V[:0], 1, "edge"), ArgumentError, "pad: axis 0 is empty"),
        (lambda: nnp.diagonal(V), ShapeError, "diagonal: a diagonal needs a matrix"),
        (lambda: nnp.flip(M, dims=0), ArgumentTypeError, "(?s)flip: .*axis="),
        (lambda: nnp.block([]), ArgumentError, "block: a list of blocks is empty"),
        (lambda: nnp.transpose(M, 0), ShapeError, "transpose: .* no permutation"),
    ],
)
def test_a_mistake_is_answered_with_the_functions_name(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize("dtype", ["float64", "int64"])
@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("linear_ramp", {}), ("linear_ramp", {"end_values": ((1, 2), (3, -4))}), ("linear_ramp", {"end_values": (5, 7)}),
        ("maximum", {}), ("minimum", {"stat_length": 2}), ("mean", {"stat_length": ((1, 2), (2, 9))}), ("median", {}),
        ("mean", {}), ("reflect", {"reflect_type": "odd"}), ("symmetric", {"reflect_type": "odd"}),
    ],
)  # fmt: skip
def test_padding_with_computed_values_agrees_with_numpy(mode, options, dtype, same):
    x = np.array([[1, 5, 2], [7, -3, 4]], dtype)
    for widths in (1, (0, 2), ((1, 2), (7, 5)), 0):
        same(nnp.pad(x, widths, mode, **options), np.pad(x, widths, mode, **options))
    same(nnp.pad(x[:1, :1], 3, mode, **options), np.pad(x[:1, :1], 3, mode, **options))
    if dtype == "float64":
        nnc.testing.check_grads(lambda x: nnp.pad(x, ((1, 2), (4, 0)), mode, **options), (x,), order=1)


def test_padding_that_cannot_be_done_is_refused():
    with pytest.raises(ArgumentError, match="pad: there is no mode 'blur'"):
        nnp.pad(np.ones(2), 1, "blur")
    with pytest.raises(ArgumentError, match="pad: reflect_type is 'strange'"):
        nnp.pad(np.ones(2), 1, "reflect", reflect_type="strange")
    with pytest.raises(ArgumentError, match="axis 0 is empty"):
        nnp.pad(np.ones(0), 1, "mean")


def test_columns_can_be_read_and_filled_first(same):
    x = np.arange(12).reshape(2, 3, 2)
    for shape in ((4, 3), (12,), (3, -1), (2, 1, 6)):
        same(nnp.reshape(x, shape, order="F"), np.reshape(x, shape, order="F"))
        same(nnp.asarray(x).reshape(*shape, order="F"), x.reshape(*shape, order="F"))
    same(nnp.ravel(x, "F"), np.ravel(x, "F"))
    same(nnp.asarray(x).flatten("F"), x.flatten("F"))
    with pytest.raises(nnc.errors.ArgumentError, match="order='A' is unknown"):
        nnp.ravel(x, order="A")


def test_a_traced_shift_rolls_as_a_known_one(same):
    x = np.arange(6).reshape(2, 3)
    rolled = nnc.compile(lambda x, n: (nnp.roll(x, n), nnp.roll(x, n, 1), nnp.roll(x, (n, 1), (1, 0))))
    for n in (-7, 0, 2, 9):
        for got, want in zip(rolled(x, n), (np.roll(x, n), np.roll(x, n, 1), np.roll(x, (n, 1), (1, 0))), strict=True):
            same(got, want)


def test_traced_numbers_of_repeats_need_the_total():
    x = np.arange(3.0)
    repeated = nnc.compile(lambda x, n: nnp.repeat(x, n, total_repeat_length=4))
    for counts in ([1, 0, 3], [0, 0, 4], [2, 2, 0], [4, 0, 0]):
        assert repeated(x, np.array(counts)).tolist() == np.repeat(x, counts).tolist()
    for counts in ([1, 1, 1], [2, 2, 2]):
        with pytest.raises(IndexError):
            repeated(x, np.array(counts))
    with pytest.raises(nnc.errors.TraceError, match="pass total_repeat_length=n"):
        nnc.compile(nnp.repeat)(x, np.array([1, 0, 3]))
    gradient = nnc.grad(lambda x: (nnp.repeat(x, np.array([1, 0, 3]), total_repeat_length=4) * np.arange(4.0)).sum())(x)
    assert gradient.tolist() == [0, 0, 6]


@pytest.mark.parametrize(
    ("shift", "axis"),
    [
        (np.array(1), 1), (np.array([1]), None), (np.array([1, 2]), None), (np.array([1, -2]), (0, 1)), ([3, 1], None),
        (np.array([1]), (0, 1)), ([1, 2], (0, 0)), ((1, np.int32(2)), (0, 1)), (True, 0), ((), ()), (np.array([], int), ()),
    ],
)  # fmt: skip
def test_shifts_that_are_traced_roll_as_those_that_are_known_and_as_numpys(shift: Any, axis: Any) -> None:
    x = np.arange(12).reshape(3, 4)
    wanted = np.roll(x, shift, axis)
    np.testing.assert_array_equal(nnp.roll(x, shift, axis), wanted)
    np.testing.assert_array_equal(nnp.roll(x, nnp.asarray(shift) if hasattr(shift, "shape") else shift, axis), wanted)
    np.testing.assert_array_equal(nnc.compile(lambda shift: nnp.roll(x, shift, axis))(shift), wanted)
    rows = nnc.vmap(lambda x: nnp.roll(x, shift, axis))(np.stack([x, 2 * x]))
    np.testing.assert_array_equal(rows, [wanted, 2 * wanted])


@pytest.mark.parametrize("shift", [1.5, np.array([1.5]), np.ones((2, 2), int), [[1, 2]], "a"])
@pytest.mark.parametrize("run", [lambda f: f, nnc.compile], ids=["known", "traced"])
def test_a_shift_that_is_no_integer_is_refused_known_or_traced(run: Any, shift: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="roll: shift"):
        run(lambda shift: nnp.roll(np.arange(4), shift, 0))(shift)


@pytest.mark.parametrize("run", [lambda f: f, nnc.compile], ids=["known", "traced"])
def test_shifts_and_axes_of_other_numbers_are_refused_known_or_traced(run: Any) -> None:
    with pytest.raises(ArgumentError, match="3 shifts are given for 2 axes"):
        run(lambda shift: nnp.roll(np.ones((2, 2)), shift, (0, 1)))(np.array([1, 2, 3]))
