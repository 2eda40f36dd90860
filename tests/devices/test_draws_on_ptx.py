"""Random draws on `ptx:0`: the bits are the CPU's, for any shape, width and number of keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nnc
from nnc import random

FEW = settings(max_examples=settings.default.max_examples // 4)
shapes = st.lists(st.sampled_from([0, 1, 2, 5, 33, 257]), max_size=2).map(tuple)


def both(f: Any, key: Any) -> tuple[list[Any], list[Any]]:
    """The results on `ptx:0` and on the CPU; bits are not drawn by the reference."""
    compiled = nnc.compile(f)
    wanted, found = compiled(key), compiled(nnc.device_put(key, "ptx:0"))
    assert "random_bits" not in nnc.debug.explain(compiled)
    return [[np.asarray(x) for x in nnc.tree.leaves(result)] for result in (found, wanted)]  # type: ignore[return-value]


@FEW
@given(shapes, st.sampled_from(["uint8", "uint16", "uint32", "uint64"]), st.integers(0, 1 << 40))
def test_bits_of_one_key(shape: tuple[int, ...], dtype: str, seed: int) -> None:
    found, wanted = both(lambda key: random.bits(key, shape, dtype=dtype), random.key(seed))
    assert [x.tobytes() for x in found] == [x.tobytes() for x in wanted]


@FEW
@given(shapes, st.integers(1, 9))
def test_bits_of_many_keys(shape: tuple[int, ...], count: int) -> None:
    def draw(key: Any) -> Any:
        keys = random.split(key, (count, 2))
        each = nnc.vmap(nnc.vmap(lambda k: random.bits(k, shape), out_axes=-1), in_axes=1)
        return keys, each(keys), random.fold_in(key, 3)

    found, wanted = both(draw, random.key(count))
    assert [x.tobytes() for x in found] == [x.tobytes() for x in wanted]


@pytest.mark.parametrize("draw", [random.uniform, random.normal, random.exponential, random.gumbel, random.cauchy])
def test_draws_of_numbers(draw: Any) -> None:
    """Functions of the GPU's own differ in the last digits."""
    (found,), (wanted,) = both(lambda key: draw(key, (1000,)), random.key(7))
    np.testing.assert_allclose(found, wanted, rtol=3e-6, atol=1e-6)
    if draw is random.uniform:
        assert found.tobytes() == wanted.tobytes()
