from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from nnc.commands.multiply_add import multiply_add
from nnc.graph import reference


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_reference_rounds_once(dtype: type) -> None:
    rng = np.random.default_rng(1)
    x, y, z = (rng.normal(size=2000) * 2.0 ** rng.integers(-30, 30, 2000) for _ in range(3))
    x, y, z = x.astype(dtype), y.astype(dtype), z.astype(dtype)
    z[::2] = -x[::2] * y[::2]  # the sum is the rounding error of the product
    found = reference[multiply_add](x, y, z)
    for a, b, c, out in zip(x, y, z, found, strict=True):
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        nearest = [np.nextafter(out, dtype(side)) for side in (-np.inf, np.inf)]
        assert all(abs(Fraction(float(out)) - exact) <= abs(Fraction(float(other)) - exact) for other in nearest)


def test_the_reference_passes_infinities_and_nan_on() -> None:
    x = np.array([np.inf, 0, np.inf, np.nan, 3e38, 1])
    y = np.array([2, np.inf, 1, 1, 2, 1])
    z = np.array([1, 1, -np.inf, 1, 1, np.inf])
    found = np.asarray(reference[multiply_add](x, y, z))
    np.testing.assert_array_equal(found, [np.inf, np.nan, np.nan, np.nan, 6e38, np.inf])
