"""Division is linear in what is divided, so rules and linear functions may divide a tangent."""

from __future__ import annotations

from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp


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
