"""Contractions against NumPy: the command `dot` through matmul, dot, einsum, tensordot …"""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.array.matmul import matmul
from nnc.commands.contract import dot
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError
from nnc.graph import TensorSpec, attribute, infer
from nnc.numpy import contractions

RNG = np.random.default_rng(0)
MATMUL_SHAPES = [(3,), (2, 3), (4, 2, 3), (1, 2, 3), (5, 4, 2, 3), (5, 1, 2, 3), (1, 4, 2, 3), (0, 3), (4, 0, 3)]
EINSUMS: list[tuple[str, tuple[tuple[int, ...], ...]]] = [
    ("ij,jk->ki", ((2, 3), (3, 4))),
    ("ij,jk", ((2, 3), (3, 4))),
    ("ba", ((2, 3),)),
    ("ii", ((3, 3),)),
    ("ii->i", ((3, 3),)),
    ("iji->j", ((3, 2, 3),)),
    ("iii->i", ((3, 3, 3),)),
    ("i,i", ((3,), (3,))),
    ("i,j", ((3,), (4,))),
    ("...ij,...jk->...ik", ((5, 1, 2, 3), (4, 3, 2))),
    ("...,...", ((2, 3), (3,))),
    ("ij...->j...i", ((2, 3, 4, 5),)),
    ("a...a->...", ((2, 3, 2),)),
    ("bhqd,bhkd->bhqk", ((2, 3, 4, 5), (2, 3, 6, 5))),
    ("ij,ij->ij", ((2, 3), (2, 3))),
    ("ij,ij->i", ((1, 3), (2, 3))),
    ("ij,kl->", ((2, 3), (4, 5))),
    (",ij->ji", ((), (2, 3))),
    ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 5))),
    ("ij,jk,kl,lm->mi", ((2, 3), (3, 4), (4, 5), (5, 6))),
    ("i,i,i->i", ((3,), (3,), (3,))),
    ("i,j,k->kij", ((3,), (2,), (4,))),
    ("ab,bc,ca->", ((2, 3), (3, 4), (4, 2))),
    ("ii,jj->ij", ((2, 2), (3, 3))),
    ("ij->", ((0, 3),)),
    ("ij,jk->ik", ((2, 0), (0, 2))),
    ("ij,jk,kl->il", ((2, 0), (0, 4), (4, 5))),
    ("ii->i", ((0, 0),)),
]


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape)


def check(got: Any, want: Any) -> None:
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("left", "right"), list(itertools.product(MATMUL_SHAPES, MATMUL_SHAPES)))
def test_matmul_agrees_with_numpy_on_vectors_matrices_and_batches(
    left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    right = right if len(right) == 1 else (*right[:-2], right[-1], right[-2])
    x, y = normal(*left), normal(*right)
    try:
        want = np.matmul(x, y)
    except ValueError:
        with pytest.raises(ShapeError):
            matmul(x, y)
    else:
        check(matmul(x, y), want)


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int8, np.uint64, np.float16, ml_dtypes.bfloat16, np.float32, np.complex64]
)
def test_matmul_keeps_the_dtype(dtype: Any) -> None:
    x, y = RNG.integers(0, 3, (2, 4)).astype(dtype), RNG.integers(0, 3, (4, 3)).astype(dtype)
    out = matmul(x, y)
    assert out.dtype == np.dtype(dtype)
    wide = {"b": np.bool_, "c": np.complex128}.get(np.dtype(dtype).kind, np.int64)
    np.testing.assert_array_equal(np.asarray(out), (x.astype(wide) @ y.astype(wide)).astype(dtype))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sixteen_bit_floats_accumulate_in_float32(dtype: Any) -> None:
    ones = np.ones(4096, dtype)  # a 16-bit sum of ones sticks at 2048 or 256
    assert float(matmul(ones, ones)) == 4096


def test_matmul_promotes_its_operands() -> None:
    assert matmul(np.ones((2, 2), np.int32), np.ones((2, 2), np.float32)).dtype == np.float32


def test_a_product_over_no_elements_is_zero() -> None:
    np.testing.assert_array_equal(np.asarray(matmul(np.ones((2, 0)), np.ones((0, 3)))), np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ((32, 128), (64, 10), "matmul: contracting sizes differ: left axis 1 is 128, right axis 0 is 64."),
        ((128,), (64,), "matmul: contracting sizes differ: left axis 0 is 128, right axis 0 is 64."),
        ((3, 2, 2), (2, 2, 2), "matmul: batch sizes do not broadcast: left axis 0 is 3, right axis 0 is 2."),
        ((), (2,), "matmul: the left operand is 0-d."),
        ((2,), (), "matmul: the right operand is 0-d."),
    ],
)
def test_matmul_names_the_axes_that_do_not_fit(left: tuple[int, ...], right: tuple[int, ...], message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        matmul(np.ones(left, np.float32), np.ones(right, np.float32))
    assert str(caught.value).startswith(message)
    assert "\nFix: " in str(caught.value)


@pytest.mark.parametrize(
    ("contract", "batch", "message"),
    [
        (((1,), (1,)), ((), ()), "contracting sizes differ: left axis 1 is 3, right axis 1 is 4"),
        (((1,), (0,)), ((0,), (1,)), "batch sizes differ: left axis 0 is 2, right axis 1 is 4"),
        (((1, 0), (0,)), ((), ()), "two tuples of one length"),
        (((1,), (0,)), ((1,), (0,)), "name one axis twice"),
        (((-1,), (0,)), ((), ()), "counted from the front"),
        (((2,), (0,)), ((), ()), "axis 2 is out of range"),
    ],
)
def test_dot_refuses_axes_that_do_not_pair(contract: Any, batch: Any, message: str) -> None:
    with pytest.raises((ShapeError, ArgumentError), match=message):
        infer[dot](TensorSpec((2, 3), "float32"), TensorSpec((3, 4), "float32"), contract=contract, batch=batch)


def test_the_cost_of_dot_is_two_operations_for_each_product() -> None:
    specs = TensorSpec((5, 2, 3), "float32"), TensorSpec((5, 3, 4), "float32")
    assert attribute("cost")[dot](*specs, contract=((2,), (1,)), batch=((0,), (0,))) == 2 * 5 * 2 * 3 * 4


@pytest.mark.parametrize("optimize", [True, False, "optimal"])
@pytest.mark.parametrize(("subscripts", "shapes"), EINSUMS, ids=[subscripts for subscripts, _ in EINSUMS])
def test_einsum_agrees_with_numpy(subscripts: str, shapes: tuple[tuple[int, ...], ...], optimize: bool | str) -> None:
    operands = [normal(*shape) for shape in shapes]
    check(contractions.einsum(subscripts, *operands, optimize=optimize), np.einsum(subscripts, *operands))


def test_einsum_takes_lists_of_labels() -> None:
    x, y = normal(2, 3), normal(3, 4)
    check(contractions.einsum(x, [0, 1], y, [1, 2], [2, 0]), (x @ y).T)
    check(contractions.einsum(x, [0, 1], y, [1, 2]), x @ y)
    check(contractions.einsum(x, [..., 1], y, [1, 2], [..., 2]), x @ y)


def test_einsum_has_no_limit_of_52_labels() -> None:
    x = normal(*(1,) * 60)
    check(contractions.einsum(x, list(range(60)), [3]), x.reshape(1))


def test_einsum_of_bools_is_logical() -> None:
    x = RNG.random((4, 3)) > 0.5
    np.testing.assert_array_equal(np.asarray(contractions.einsum("ij->i", x)), x.any(axis=1))


def test_einsum_contracts_the_cheap_pair_first() -> None:
    shapes = ((8, 9), (9, 10), (10,))
    graph = nnc.make_graph(lambda a, b, c: contractions.einsum("ij,jk,k->i", a, b, c))(*map(np.ones, shapes))
    assert all(len(symbol.spec.shape) < 2 for node in graph.nodes for symbol in node.outputs)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (("ij,jk", 2), ArgumentError, "it describes 2 operands, 1 were given"),
        (("i*", 2), ArgumentError, "'\\*' is no letter"),
        (("ij", 3), ArgumentError, "operand 0 has 3 axes, its labels name 2"),
        (("ijk->ijj", 3), ArgumentError, "output label 'j'"),
        (("ijk->q", 3), ArgumentError, "output label 'q'"),
        (("...i->i", 3), ArgumentError, "the output has no '...'"),
        (("iij", 3), ShapeError, "label 'i' has size 4 and, in operand 0, size 2"),
    ],
)
def test_einsum_explains_wrong_subscripts(arguments: tuple[str, int], kind: type[Exception], message: str) -> None:
    subscripts, ndim = arguments
    with pytest.raises(kind, match=message):
        contractions.einsum(subscripts, normal(*(4, 2, 3)[:ndim]))


def test_einsum_refuses_labels_that_are_no_list() -> None:
    with pytest.raises(ArgumentTypeError, match="labels are given as 3"):
        contractions.einsum(normal(2), 3)


@pytest.mark.parametrize("name", ["dot", "inner", "outer", "vdot"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((2, 3), (3, 2)),
        ((4, 2, 3), (5, 3, 2)),
        ((), (3,)),
        ((2, 3, 4), (2, 3, 4)),
        ((2, 1), (2,)),
    ],
)
def test_products_agree_with_numpy(name: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x, y = normal(*left) + 1j * normal(*left), normal(*right)
    try:
        want = getattr(np, name)(x, y)
    except ValueError:
        with pytest.raises(ShapeError):
            getattr(contractions, name)(x, y)
    else:
        check(getattr(contractions, name)(x, y), want)


@pytest.mark.parametrize("axes", [0, 1, (-1, 0), ((0, 2), (1, 0)), ([2], [0])])
def test_tensordot_agrees_with_numpy(axes: Any) -> None:
    x, y = normal(4, 2, 3), normal(3, 4, 5)
    check(contractions.tensordot(x, y, axes), np.tensordot(x, y, axes))


@pytest.mark.parametrize(
    ("axes", "kind", "message"),
    [
        (4, ArgumentError, "axes=4 is more than"),
        (((0,), (0,)), ShapeError, "left axis 0 is 4, right axis 0 is 3"),
        (((0, 1), (0,)), ArgumentError, "2 axes of the left operand are paired with 1"),
    ],
)
def test_tensordot_refuses_axes_that_do_not_pair(axes: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        contractions.tensordot(normal(4, 2, 3), normal(3, 4, 5), axes)


def test_vecdot_conjugates_and_broadcasts() -> None:
    x, y = normal(4, 2, 3) + 1j * normal(4, 2, 3), normal(1, 2, 3)
    check(contractions.vecdot(x, y), np.vecdot(x, y))
    check(contractions.vecdot(x, y, axis=1), np.vecdot(x, y, axis=1))
    with pytest.raises(ShapeError, match="left axis -1 is 3, right axis -1 is 2"):
        contractions.vecdot(normal(3), normal(2))


@pytest.mark.parametrize("subscripts", ["ij,ji->i", "ij,ji->j", "ij,ji", "ii,ij->j", "iij,ji->i", "cdc,bbcb,cbca->"])
@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_gradients_of_einsum_with_letters_that_occur_again(subscripts: str, n: int) -> None:
    rng = np.random.default_rng(0)
    left = subscripts.partition("->")[0].split(",")
    operands = [rng.normal(size=[{"j": 2, "b": 3}.get(letter, n) for letter in letters]) for letters in left]
    value = np.einsum(subscripts, *operands)
    np.testing.assert_allclose(np.asarray(nnp.einsum(subscripts, *operands)), value, atol=1e-12)
    for i, x in enumerate(operands):
        gradient = nnc.grad(lambda *xs: nnp.einsum(subscripts, *xs).sum(), i)
        for run in (gradient, nnc.compile(gradient)):  # of a function that is linear in x
            np.testing.assert_allclose(np.sum(np.asarray(run(*operands)) * x), value.sum(), atol=1e-12)
