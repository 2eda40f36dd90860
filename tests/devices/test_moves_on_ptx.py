"""Moves of elements on `ptx:0`: copies of views, joins and padding have the CPU's bits, for any sizes, steps and dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.base.dtypes import bfloat16

DTYPES = ("bool", "int8", "uint16", "float16", bfloat16, "int32", "float32", "float64", "uint64", "complex64")
FEW = settings(max_examples=settings.default.max_examples // 4)
sizes = st.sampled_from([1, 2, 3, 5, 8, 17, 33])
shapes = st.lists(sizes, min_size=1, max_size=3).map(tuple)


def array(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 100, shape).astype(dtype)


def check(f: Callable[..., Any], *args: Any, without: tuple[str, ...] = ()) -> None:
    """A function on `ptx:0` has the CPU's bits, and none of these commands runs by its reference."""
    compiled = nnc.compile(f)
    wanted, found = compiled(*args), compiled(*nnc.device_put(args, "ptx:0"))
    for x, y in zip(nnc.tree.leaves(found), nnc.tree.leaves(wanted), strict=True):
        assert x.spec == y.spec and np.asarray(x).tobytes() == np.asarray(y).tobytes()
    told = nnc.debug.explain(compiled)
    assert not any(f"{name} (" in told for name in without), told


@FEW
@given(shapes, st.sampled_from(DTYPES), st.data())
def test_slices_with_steps_and_turned_axes(shape: tuple[int, ...], dtype: Any, data: Any) -> None:
    def part(n: int) -> slice:
        step = data.draw(st.sampled_from([1, 2, 3, -1, -2]))
        first, last = sorted(data.draw(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))))
        return slice(first, last + 1, step) if step > 0 else slice(last, first - 1 if first else None, step)

    parts = tuple(part(n) for n in shape)
    axes = data.draw(st.permutations(range(len(shape))))
    check(lambda x: (x[parts], nnp.transpose(x, axes), nnp.transpose(x[parts], axes).reshape(-1)), array(shape, dtype))


@FEW
@given(shapes, st.lists(st.sampled_from([0, 1, 4, 7]), min_size=1, max_size=5), st.sampled_from(DTYPES), st.data())
def test_joins_of_parts_of_any_length(shape: tuple[int, ...], counts: list[int], dtype: Any, data: Any) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    parts = [array((*shape[:axis], n, *shape[axis + 1 :]), dtype, i) for i, n in enumerate(counts)]
    check(lambda *xs: (nnp.concatenate(xs, axis=axis), nnp.concatenate([*xs, xs[0]], axis=axis)[::-1]), *parts)


@FEW
@given(shapes, st.sampled_from(DTYPES), st.data())
def test_padding_around_and_between_elements(shape: tuple[int, ...], dtype: Any, data: Any) -> None:
    width = st.tuples(st.integers(0, 4), st.integers(0, 4))
    widths = [data.draw(width) for _ in shape]
    check(lambda x: nnp.pad(x, widths), array(shape, dtype))


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name != "complex64"])
def test_moves_are_printed_for_all_dtypes_of_up_to_eight_bytes(dtype: Any) -> None:
    x = array((5, 9), dtype)
    moves = ("copy", "concatenate", "pad", "slice", "reshape", "flip", "transpose")
    check(lambda x: (nnp.pad(x, 2), nnp.concatenate([x, x[::2]]), x.T.reshape(-1), nnp.flip(x, 1)), x, without=moves)


def test_a_number_that_is_no_element_pads() -> None:
    check(lambda x, v: nnp.pad(x, ((1, 2), (0, 3)), constant_values=v), array((4, 5), "float32"), np.float32(2.5))


def test_empty_results_and_results_of_one_element() -> None:
    empty = array((0, 3), "float32")
    check(lambda x, y: (nnp.concatenate([x, x]), nnp.pad(y, 1), y[:, 1:1], y.reshape(1)), empty, array((1, 1), "int8"))
