"""check_grads finds wrong derivatives and passes right ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.testing import check_grads

X = np.array([0.3, -1.2, 0.7])


def wrong(factor: float, order: int) -> Any:
    """sin whose derivative of one order is wrong by `factor`."""
    slope = nnc.custom_jvp(lambda x: nnp.cos(x))
    slope.defjvp(lambda p, t: (nnp.cos(p[0]), -nnp.sin(p[0]) * t[0] * (factor if order == 2 else 1)))
    f = nnc.custom_jvp(lambda x: nnp.sin(x))
    f.defjvp(lambda p, t: (nnp.sin(p[0]), slope(p[0]) * t[0] * (factor if order == 1 else 1)))
    return f


@pytest.mark.parametrize("modes", [("fwd",), ("rev",), "rev", ("fwd", "rev")])
def test_a_wrong_derivative_is_found_in_its_order(modes: Any) -> None:
    check_grads(wrong(1.0, 1), (X,), 2, modes)
    with pytest.raises(AssertionError, match="derivative 1"):
        check_grads(wrong(1.0001, 1), (X,), 1, modes)
    check_grads(wrong(1.001, 2), (X,), 1, modes)
    with pytest.raises(AssertionError, match="derivative 2"):
        check_grads(wrong(1.001, 2), (X,), 2, modes)


def test_a_wrong_reverse_rule_is_found() -> None:
    f = nnc.custom_vjp(lambda x: x**2)
    f.defvjp(lambda x: (x**2, x), lambda x, ct: (2.001 * x * ct,))
    with pytest.raises(AssertionError, match="reverse mode"):
        check_grads(f, (X,), 1, "rev")
    with pytest.raises(AssertionError, match="nan"):
        check_grads(lambda x: nnp.sqrt(x - x), (X,), 1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_default_bounds_fit_the_dtype(dtype: str) -> None:
    x = nnp.asarray(X, dtype=dtype)
    check_grads(lambda x: nnp.sin(x) * x + nnp.exp(-x), (x,), 2)
    with pytest.raises(AssertionError):
        check_grads(wrong(3.0, 1), (x,), 1)


def test_trees_with_integers_none_and_static_leaves_are_checked() -> None:
    tree = {"x": X, "i": np.arange(3), "name": "text", "none": None, "f": nnp.sin}
    check_grads(lambda t, s: {"y": t["f"](t["x"]) * t["i"] * s, "i": t["i"], "n": t["name"]}, (tree, 2.0), 2)


def test_complex_functions_are_checked_along_complex_directions() -> None:
    z = X + 1j * X[::-1]
    check_grads(lambda z: nnp.exp(z) * nnp.conj(z), (z,), 2)


def test_bounds_and_steps_can_be_given_and_modes_are_checked() -> None:
    check_grads(wrong(1.01, 1), (X,), 1, atol=0.1, rtol=0.1)
    with pytest.raises(AssertionError):
        check_grads(nnp.sin, (X,), 1, atol=0.0, rtol=0.0, eps=0.3)
    with pytest.raises(ValueError, match="modes"):
        check_grads(nnp.sin, (X,), 1, ("backwards",))


def test_derivatives_on_a_device_are_checked_there() -> None:
    weights = np.array([[0.5, -0.2], [0.1, 0.9], [0.3, 0.3]])
    there, x = nnc.device_put((weights, X), "sim:0")
    check_grads(lambda x: nnp.tanh(x @ there), (x,), 2)
    with nnc.default_device("sim:0"):
        check_grads(lambda x, w: nnp.tanh(x @ w) @ nnp.ones((2, 2)), (X, weights), 2)
        with pytest.raises(AssertionError, match="derivative 1"):
            check_grads(wrong(1.0001, 1), (X,), 1)
