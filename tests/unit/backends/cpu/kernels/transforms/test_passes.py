from __future__ import annotations

import math

import numpy as np
import pytest

from nnc.backends.cpu.kernels.transforms.passes import buffer_points, is_smooth, radices, roots

_PI = np.longdouble("3.14159265358979323846264338327950288")


def test_radices_multiply_to_the_points_and_large_primes_have_none() -> None:
    for n in range(1, 2000):
        found = radices(n)
        largest = max((p for p in range(2, n + 1) if n % p == 0 and all(p % q for q in range(2, p))), default=1)
        assert math.prod(found) == (n if largest <= 13 else 1), n
        assert is_smooth(n) == (largest <= 13)


def test_a_convolution_has_room_for_all_products() -> None:
    for n in (17, 34, 257, 1009):
        m = buffer_points(n)
        assert m >= 2 * n - 1 and is_smooth(m)
    assert buffer_points(60) == 60


@pytest.mark.parametrize("n", [1, 2, 3, 8, 12, 100, 1021])
def test_roots_of_one_are_exact_to_the_last_bit(n: int) -> None:
    powers = np.arange(-n, 2 * n)
    found = roots(n, powers, 1)
    angles = powers % n * (2 * _PI / n)
    for part, exact in ((found.real, np.cos(angles)), (found.imag, np.sin(angles))):
        assert np.max(np.abs(part - exact)) <= 2**-53
    np.testing.assert_array_equal(roots(n, powers, -1), found.conj())
