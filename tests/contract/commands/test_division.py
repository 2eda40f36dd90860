"""Division is linear in the dividend, so rules and linear functions may divide a tangent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base import dtypes


def test_a_function_that_divides_its_argument_is_transposed() -> None:
    (ct,) = nnc.linear_transpose(lambda x: x / np.asarray([2.0, 4.0]), np.zeros(2))(np.ones(2))
    assert ct.tolist() == [0.5, 0.25]


def test_a_forward_rule_that_divides_its_tangent_serves_reverse_mode() -> None:
    @nnc.custom_jvp
    def logarithm(x: Any) -> Any:
        return nnp.log(x)

    logarithm.defjvp(lambda primals, tangents: (logarithm(primals[0]), tangents[0] / primals[0]))
    assert float(nnc.grad(logarithm)(4.0)) == 0.25
    assert float(nnc.grad(nnc.grad(logarithm))(4.0)) == -0.0625


def test_a_zero_cotangent_stays_zero_through_division_by_zero() -> None:
    (ct,) = nnc.linear_transpose(lambda x: x / np.asarray([0.0, 1.0]), np.zeros(2))(np.asarray([0.0, 1.0]))
    assert ct.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("dtype", [*dtypes.SIGNED, *dtypes.UNSIGNED], ids=str)
def test_integers_divided_by_zero_give_zero_and_the_lowest_by_minus_one_wraps_however_it_is_run(dtype: Any) -> None:
    info = np.iinfo(dtype)
    lowest, minus_one = info.min, -1 if info.min else 1
    x = np.resize(np.array([5, 5 if info.min == 0 else -5, 0, lowest, info.max, lowest, 7], dtype), 129)
    y = np.resize(np.array([0, 0, 0, minus_one, 0, 0, 2], dtype), 129)
    for ours, theirs in ((nnp.floor_divide, np.floor_divide), (nnp.remainder, np.remainder), (nnp.fmod, np.fmod)):
        with np.errstate(all="ignore"):
            wanted = theirs(x, y)
        for size in (1, 2, 17, 129):
            a, b = x[-size:], y[-size:]
            folded = nnc.compile(lambda f=ours, a=a, b=b: f(nnp.asarray(a), nnp.asarray(b)))
            for got in (ours(a, b), nnc.compile(ours)(a, b), nnc.vmap(ours)(a, b), folded()):
                np.testing.assert_array_equal(np.asarray(got), wanted[-size:])
        for zero in (0, np.zeros((), dtype)):  # a divisor that is known
            for got in (ours(nnp.asarray(x), zero), nnc.compile(lambda x, f=ours, zero=zero: f(x, zero))(x)):
                np.testing.assert_array_equal(np.asarray(got), np.zeros_like(x))
