"""Derivatives of inverse functions of complex numbers, on both sides of their cuts and on all of their sheets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp

STEP = 1e-6
OFF_CUTS = [complex(a, b) for a in (-1.7, -0.3, 0.4, 2.1) for b in (-1.3, -0.2, 0.6, 1.9)]
ON_THE_REAL_AXIS = [complex(a, b) for a in (-2.0, -0.3, 0.3, 2.0) for b in (0.0, -0.0)]
ON_THE_IMAGINARY_AXIS = [complex(a, b) for a in (0.0, -0.0) for b in (-2.0, -0.5, 0.5, 2.0)]


def slopes(function: Any, points: list[complex], direction: complex) -> Any:
    """Differences of NumPy's values between neighbours along an axis: on the same side of a cut that lies on it."""
    real, imag = np.array([x.real for x in points]), np.array([x.imag for x in points])
    values = []
    for t in (STEP, -STEP):
        moved = np.empty(len(points), np.complex128)
        moved.real, moved.imag = (real, imag + t) if direction.imag else (real + t, imag)
        values.append(function(moved))
    return (values[0] - values[1]) / (2 * STEP * direction)


@pytest.mark.parametrize("run", [lambda f: f, nnc.compile], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", ["asin", "acos", "atan", "asinh", "acosh", "atanh", "sqrt", "log"])
def test_derivatives_of_complex_inverses_are_those_of_the_side_of_a_cut_that_the_sign_of_zero_names(
    name: str, run: Any
) -> None:
    ours, numpys = getattr(nnp, name), getattr(np, {"sqrt": "sqrt", "log": "log"}.get(name, f"arc{name[1:]}"))
    derivative = run(lambda x: nnc.jvp(ours, (x,), (nnp.ones_like(x),))[1])
    for points, direction in (OFF_CUTS, 1), (ON_THE_REAL_AXIS, 1), (ON_THE_IMAGINARY_AXIS, 1j):
        expected = slopes(numpys, points, complex(direction))
        np.testing.assert_allclose(np.asarray(derivative(np.array(points))), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["asin", "acos", "asinh", "acosh", "atanh"])
def test_second_derivatives_of_complex_inverses_are_those_of_differences(name: str) -> None:
    def first(x: Any) -> Any:
        return nnc.jvp(getattr(nnp, name), (x,), (nnp.ones_like(x),))[1]

    expected = slopes(lambda x: np.asarray(first(nnc.asarray(x))), ON_THE_REAL_AXIS, 1 + 0j)
    points = nnc.asarray(np.array(ON_THE_REAL_AXIS))
    found = nnc.compile(lambda x: nnc.jvp(first, (x,), (nnp.ones_like(x),))[1])(points)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6, atol=1e-8)
