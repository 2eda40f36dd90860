"""The Faddeeva function, against stored numbers and SciPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.special

import nnc
import nnc.numpy as nnp
import nnc.scipy.special as sp
from nnc.testing import check_grads
from tests.unit.scipy.special.checks import stored

NDArray = np.ndarray[Any, Any]


def numbers() -> tuple[NDArray, NDArray]:
    """Points of the plane and the function there."""
    (x, y), real = stored("wofz_real", "0,0")
    _, imaginary = stored("wofz_imag", "0,0")
    return x + 1j * y, real + 1j * imaginary


def derivative(z: NDArray) -> NDArray:
    return np.asarray(nnc.jvp(sp.wofz, (z,), (np.ones_like(z),))[1])


def worst(got: Any, want: NDArray) -> float:
    """The greatest error, relative to the value."""
    got = np.asarray(got)
    assert got.shape == want.shape and want.all()
    return float(np.max(np.abs(got - want) / np.abs(want)))


@pytest.mark.parametrize(
    "run", [sp.wofz, nnc.compile(sp.wofz), nnc.vmap(sp.wofz)], ids=["at once", "compiled", "mapped"]
)
def test_values_have_all_digits_in_the_whole_plane(run: Any) -> None:
    z, want = numbers()
    got = np.asarray(run(z))
    assert got.dtype == np.complex128 and worst(got, want) < 1e-15


def test_each_part_has_its_digits_in_the_upper_half_plane_however_small_it_is() -> None:
    z, want = numbers()
    upper = z.imag >= 0
    got, want = np.asarray(sp.wofz(z[upper])), want[upper]
    for part, exact in ((got.real, want.real), (got.imag, want.imag)):
        np.testing.assert_allclose(part, exact, rtol=2e-14, atol=1e-320)


def test_a_grid_and_random_points_agree_with_scipy() -> None:
    rng = np.random.default_rng(0)
    z = np.concatenate([
        (np.linspace(-9, 9, 61)[:, None] + 1j * np.linspace(-4, 9, 53)).ravel(),
        rng.uniform(-30, 30, 2000) + 1j * 10 ** rng.uniform(-25, 1.2, 2000) * rng.choice([-1, 1], 2000),
        10 ** rng.uniform(-9, 300, 1000) * np.exp(1j * rng.uniform(0, math.pi, 1000)),
    ])  # fmt: skip
    z = z[np.abs(z.imag) < 26]
    assert worst(nnc.compile(sp.wofz)(z), scipy.special.wofz(z)) < 1e-12  # scipy's own error is 3e-14, more near zeros


def test_narrow_operands_are_rounded_once() -> None:
    z = numbers()[0].astype(np.complex64)
    with np.errstate(over="ignore", under="ignore"):
        want = np.asarray(sp.wofz(z.astype(np.complex128))).astype(np.complex64)
    got = np.asarray(sp.wofz(z))
    assert got.dtype == np.complex64
    np.testing.assert_array_equal(got, want)


def test_real_operands_give_the_complex_dtype_of_their_size() -> None:
    dtypes = {np.float32: np.complex64, np.float64: np.complex128, np.int32: np.complex64}
    for given, result in dtypes.items():
        assert sp.wofz(given(1)).dtype == result
    assert complex(sp.wofz(np.float64(1))) == complex(sp.wofz(np.complex128(1)))


def test_ends_are_those_of_scipy() -> None:
    edges = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-300, 1e300, 30.0]
    z = np.array([complex(x, y) for x in edges for y in [*edges, -30.0] if not (x == 0 and y != y)])
    with np.errstate(all="ignore"):
        want = scipy.special.wofz(z)
    got = np.asarray(sp.wofz(z))
    np.testing.assert_allclose(got.real, want.real, rtol=1e-12)
    np.testing.assert_allclose(got.imag, want.imag, rtol=1e-12)
    assert np.isnan(np.asarray(sp.wofz(complex(0.0, math.nan))).real)


def test_it_overflows_to_infinities_of_the_right_signs_in_the_lower_half_plane() -> None:
    z = np.array([1 - 27j, -1 - 27j, 2 - 300j, -27j])
    angle = -2 * z.real * z.imag
    got = np.asarray(sp.wofz(z))
    np.testing.assert_array_equal(got.real, np.copysign(np.inf, np.cos(angle)))
    np.testing.assert_array_equal(got.imag[:3], np.copysign(np.inf, np.sin(angle[:3])))
    assert got.imag[3] == 0
    assert complex(sp.wofz(1e20 - 1e19j)).real == pytest.approx(-1e-1 * 1e-20 / 1.01 / math.sqrt(math.pi))


def test_it_is_the_known_functions_on_the_axes() -> None:
    x = np.linspace(-6, 6, 41)
    np.testing.assert_allclose(np.asarray(sp.wofz(1j * x)).real, scipy.special.erfcx(x), rtol=3e-15)
    on_axis = np.asarray(sp.wofz(x))
    np.testing.assert_allclose(on_axis.real, np.exp(-x * x), rtol=1e-14)
    np.testing.assert_allclose(on_axis.imag, 2 / math.sqrt(math.pi) * scipy.special.dawsn(x), rtol=1e-14)


def test_derivatives_satisfy_the_differential_equation_where_it_does_not_cancel() -> None:
    z, w = numbers()
    near = np.abs(z) < 1
    assert worst(derivative(z[near]), -2 * z[near] * w[near] + 2j / math.sqrt(math.pi)) < 1e-14


def test_derivatives_of_large_operands_do_not_cancel() -> None:
    z = np.array([30 + 0j, 1e3 + 1e-5j, 5e7 + 3e7j, 1e9 - 1j, 2e12j, -1e150 + 1e149j])
    series = -1j / (math.sqrt(math.pi) * z * z) * (1 + 1.5 / (z * z) * (1 + 2.5 / (z * z)))
    got = derivative(z)
    assert worst(got[:2], series[:2]) < 1e-7 and worst(got[2:5], series[2:5]) < 1e-15 and np.isfinite(got[5])


def test_derivatives_agree_with_differences() -> None:
    z = np.array([0.3 + 0.2j, -2 + 1j, 7 + 3j, 1 - 1j, -1.5 - 0.5j, 9 + 0j, 0j])
    check_grads(sp.wofz, (z,), order=2)
    profile = lambda x, y: nnp.real(sp.wofz(x + 1j * y))
    check_grads(profile, (np.array([0.0, 0.4, -3.0]), np.array([0.1, 2.0, 0.5])), order=2)
