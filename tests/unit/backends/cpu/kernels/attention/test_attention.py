"""Printed attention, its gradient and its tangent hold to their references: sizes, masks, layouts, dtypes, infinities and NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import nnc
from nnc.backends.cpu.kernels.attention.attention import is_printed
from nnc.base.dtypes import BY_NAME
from nnc.commands.attention import attention
from nnc.graph import reference, spec_of
from tests.unit.backends.cpu.against_reference import LAYOUTS, Layout, check, dense, native_of, run

NDArray = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
TOLERANCES = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 3e-5, "float64": 1e-11}


def operands(batch: int, t: int, s: int, heads: int, own: int, d: int, dv: int, name: str = "float32") -> list[NDArray]:
    """q, k and v."""
    shapes = ((batch, t, heads, d), (batch, s, own, d), (batch, s, own, dv))
    return [RNG.normal(size=shape).astype(BY_NAME[name]) for shape in shapes]


def settings(reach: tuple[int | None, int | None] = (None, None), *, biased: bool = False) -> dict[str, Any]:
    return {"scale": 0.3, "reach": reach, "biased": biased}


def around(x: Sequence[NDArray], params: dict[str, Any]) -> list[NDArray]:
    """The operands of the gradient."""
    out, logarithms = reference[attention](*x, **params)
    ct = RNG.normal(size=out.shape).astype(out.dtype)
    return [ct, RNG.normal(size=logarithms.shape).astype(logarithms.dtype), *x, out, logarithms]


def check_all(
    x: Sequence[NDArray], params: dict[str, Any], layout: Layout = dense, wrt: tuple[int, ...] = (0, 1, 2)
) -> None:
    """Attention, its gradient and its tangent."""
    tolerance = TOLERANCES[x[0].dtype.name]
    check("attention", [layout(a) for a in x], params, layout, tolerance)
    back = [layout(a) for a in around(x, params)]
    check("attention_gradient", back, {**params, "wrt": wrt}, layout, tolerance)
    moving = [layout(np.asarray(RNG.normal(size=x[i].shape), x[i].dtype)) for i in wrt]
    check("attention_tangent", [*moving, *back[2:]], {**params, "wrt": wrt}, layout, tolerance)


@pytest.mark.parametrize(
    ("sizes", "reach"),
    [
        ((1, 16, 16, 1, 1, 16, 16), (None, None)),
        ((2, 7, 11, 4, 2, 5, 3), (None, 0)),
        ((1, 65, 130, 2, 1, 64, 64), (5, 3)),
        ((1, 130, 65, 1, 1, 32, 32), (None, 0)),
        ((1, 1, 5, 1, 1, 1, 1), (0, -1)),
        ((2, 100, 37, 2, 2, 33, 128), (None, -3)),
        ((1, 40, 200, 3, 1, 8, 17), (10, None)),
        ((1, 20, 24, 1, 1, 130, 7), (None, None)),
    ],
)
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_sizes_and_distances(name: str, sizes: tuple[int, ...], reach: tuple[int | None, int | None]) -> None:
    check_all(operands(*sizes, name), settings(reach))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_short_floats_are_summed_in_float32(name: str) -> None:
    check_all(operands(2, 70, 45, 4, 2, 33, 20, name), settings((None, 0)))


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16"])
def test_biases_and_masks_of_every_shape(name: str) -> None:
    b, h, t, s = 2, 4, 70, 45
    shapes = [(1, h, t, s), (b, 1, 1, s), (1, 1, t, 1), (b, 1, t, s), (1, 1, 1, 1)]
    bias, *masks = (RNG.normal(size=shape) for shape in shapes)
    extras = [bias.astype(BY_NAME[name]), *(mask > -1 for mask in masks)]
    check_all([*operands(b, t, s, h, 2, 16, 16, name), *extras], settings((None, 5), biased=True))
    for shape in ((b, h, t, 1), (b, h, 1, s)):
        extra = RNG.normal(size=shape).astype(BY_NAME[name])
        check_all([*operands(b, t, s, h, 2, 16, 16, name), extra], settings(biased=True))


@pytest.mark.parametrize(
    ("name", "shape"), [("float32", (1, 4, 70, 1)), ("bfloat16", (2, 1, 70, 45)), ("float64", (2, 4, 1, 45))]
)
def test_tangents_of_biases(name: str, shape: tuple[int, ...]) -> None:
    bias = RNG.normal(size=shape).astype(BY_NAME[name])
    params = {**settings((None, 5), biased=True), "wrt": (1, 3)}
    x = [*operands(2, 70, 45, 4, 2, 16, 9, name), bias]
    moving = [RNG.normal(size=x[i].shape).astype(x[i].dtype) for i in (1, 3)]
    rest = around(x, settings((None, 5), biased=True))[2:]
    check("attention_tangent", [*moving, *rest], params, tolerance=TOLERANCES[name])


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("float32", (2, 4, 1, 45)),
        ("float64", (1, 4, 1, 45)),
        ("bfloat16", (2, 1, 1, 45)),
        ("float32", (1, 1, 1, 45)),
    ],
)
def test_gradients_of_biases_of_keys_are_summed_over_queries_and_over_heads_that_share_them(
    name: str, shape: tuple[int, ...]
) -> None:
    bias = RNG.normal(size=shape).astype(BY_NAME[name])
    mask = RNG.random((2, 1, 70, 45)) > 0.3
    params = settings((None, 5), biased=True)
    back = around([*operands(2, 70, 45, 4, 2, 16, 9, name), bias, mask], params)
    for wrt in ((3,), (0, 1, 2, 3)):
        check("attention_gradient", back, {**params, "wrt": wrt}, tolerance=5 * TOLERANCES[name])


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_keys_of_several_spans(name: str) -> None:
    params = settings((60, 20), biased=True)
    bias = RNG.normal(size=(1, 1, 1, 150)).astype(BY_NAME[name])
    back = around([*operands(1, 130, 150, 2, 1, 200, 130, name), bias], params)
    check("attention_gradient", back, {**params, "wrt": (0, 1, 2, 3)}, tolerance=5 * TOLERANCES[name])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_operands_and_results_may_lie_anyhow(layout: Layout) -> None:
    mask = RNG.random((2, 1, 19, 21)) > 0.3
    check_all([*operands(2, 19, 21, 4, 2, 18, 20), mask], settings((None, 3)), layout)


@pytest.mark.parametrize("wrt", [(0,), (1,), (2,), (0, 1), (2, 0)])
@pytest.mark.parametrize("name", ["float32", "float16"])
def test_only_the_gradients_that_are_wanted(name: str, wrt: tuple[int, ...]) -> None:
    check_all(operands(1, 20, 18, 2, 1, 8, 12, name), settings((None, 0)), wrt=wrt)


def test_rows_without_any_key_are_0_and_their_logarithms_minus_infinity() -> None:
    mask = RNG.random((1, 1, 20, 24)) > 0.5
    mask[..., [0, 7, 19], :] = False
    x = [*operands(1, 20, 24, 2, 2, 8, 8), mask]
    check_all(x, settings())
    out, logarithms = run("attention", x, settings())
    assert not out[:, [0, 7, 19]].any() and (logarithms[..., [0, 7, 19]] == -np.inf).all()
    bias = np.where(mask, 0, -np.inf).astype(np.float32)
    np.testing.assert_array_equal(run("attention", [*x[:3], bias], settings(biased=True))[0], out)


def test_values_that_are_not_finite_spoil_queries_that_may_attend_to_them() -> None:
    for place, bad in ((0, np.nan), (0, np.inf), (1, np.nan), (1, -np.inf), (2, np.nan), (2, np.inf)):
        x = operands(1, 20, 70, 2, 2, 8, 8)
        x[place][0, 5, 0, 3] = bad
        check("attention", x, settings(), tolerance=3e-5)
    x = operands(1, 20, 70, 1, 1, 8, 8)
    x[1][0, 66, 0, 3] = np.nan
    mask = np.arange(70) != 66
    out, _ = run("attention", [*x, mask[None, None, None]], settings())
    assert np.isfinite(out).all()


def test_scores_far_from_0_neither_overflow_nor_vanish() -> None:
    x = operands(1, 20, 200, 1, 1, 8, 8, "float64")
    x[1] += 3000  # exp overflows at 710
    check("attention", x, settings(), tolerance=1e-9)
    back = around(x, settings())
    assert np.isfinite(back[-2]).all()
    check("attention_gradient", back, {**settings(), "wrt": (0, 1, 2)}, tolerance=1e-6)


def test_nothing_to_do() -> None:
    for sizes in ((0, 3, 4, 2, 2, 5, 5), (2, 0, 4, 2, 2, 5, 5), (2, 3, 0, 2, 2, 5, 5)):
        check_all(operands(*sizes), settings())


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x, params = operands(2, 200, 200, 4, 2, 32, 32), settings((None, 0))
    back = around(x, params)
    found = []
    before = nnc.set_num_threads(1)
    try:
        for count in (1, 3):
            nnc.set_num_threads(count)
            found.append([*run("attention", x, params), *run("attention_gradient", back, {**params, "wrt": (0, 1, 2)})])
    finally:
        nnc.set_num_threads(before)
    for one, three in zip(*found, strict=True):
        np.testing.assert_array_equal(one, three)


def test_rows_that_are_too_long_for_the_caches_are_left_to_others() -> None:
    specs = tuple(map(spec_of, operands(1, 20, 20, 1, 1, 512, 8)))
    assert not is_printed(specs, False)
    assert is_printed(tuple(map(spec_of, operands(1, 20, 20, 1, 1, 256, 8))), False)


def test_attention_and_its_gradient_share_the_functions_that_turn_and_multiply() -> None:
    x, params = operands(1, 128, 128, 2, 2, 64, 64), settings()
    back = around(x, params)
    of_attention, of_gradient = (
        {called.name for called in native_of("attention", x, params).calls},
        {called.name for called in native_of("attention_gradient", back, {**params, "wrt": (0, 1, 2)}).calls},
    )
    assert (
        len(of_attention & of_gradient) == 2
    )  # one that turns and one that multiplies; tiles of some processors add another


def ranges(rng: np.random.Generator, shape: tuple[int, ...], keys: int) -> NDArray:
    """Keys that each query may attend to: some of none, and ends behind the last key."""
    begin = rng.integers(-3, keys + 3, shape)
    return np.stack([begin, begin + rng.integers(-2, keys // 2 + 2, shape)], -1).astype(np.int32)


def packed(t: int, s: int, segments: int) -> NDArray:
    """Ranges of queries in segments of equal length."""
    at = np.arange(t) * segments // t
    return np.stack([-(-at * s // segments), -(-(at + 1) * s // segments)], -1).astype(np.int32)


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("shape", [(2, 4, 70), (1, 1, 70), (2, 1, 1)])
def test_ranges_of_keys(name: str, shape: tuple[int, ...]) -> None:
    x = operands(2, 70, 45, 4, 2, 16, 9, name)
    some = ranges(np.random.default_rng(1), shape, 45)
    check_all([*x, some], settings())
    mask = RNG.random((2, 1, 70, 45)) > 0.3
    check_all([*x, mask, some, ranges(np.random.default_rng(2), (1, 4, 70), 45)], settings((None, 5)))


@pytest.mark.parametrize(("t", "s", "segments"), [(300, 300, 7), (700, 900, 3), (64, 1100, 2)])
def test_segments_of_several_blocks_and_spans(t: int, s: int, segments: int) -> None:
    check_all([*operands(1, t, s, 2, 1, 130, 66, "float32"), packed(t, s, segments)[None, None]], settings())
