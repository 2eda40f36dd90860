"""Probabilities of large numbers have all digits; SciPy's lose up to eight of them. Numbers are from mpmath, to 60 digits."""

from __future__ import annotations

import numpy as np
import pytest

import nnc
from nnc.scipy import stats
from nnc.scipy.stats.deviances import deviance, stirling_error
from nnc.testing import check_grads

STORED = {
    "gamma": [(8.5e5, 8.12e5, -870.1287324351661), (40.0, 30.5, -4.131527287808288), (1e-3, 12.0, -93.4886159146774)],
    "poisson": [(7885514, 7886743.25, -8.955009685240402), (30, 25.5, -2.9978827838987505), (0, 1e6, -1e6)],
    "binom": [
        (6112654, 6580953, 0.9375, -4048.8741857188484),
        (3, 1e7, 1e-6, -4.884006490247776),
        (30, 50, 0.5, -3.173444885807883),
    ],
    "nbinom": [
        (2661633, 87555.75, 0.03125, -26.169537912154546),
        (2, 1e7, 0.9999999, -1.6931471310863095),
        (40, 0.125, 0.25, -16.929129017146803),
    ],
    "beta": [
        (0.625, 71012.75, 40898.5, -16.214045627635546),
        (0.125, 3.5, 20.25, 1.7645735690771818),
        (1e-4, 2.5, 1e6, -79.56631548688577),
    ],
}


@pytest.mark.parametrize("name", STORED)
def test_logarithms_of_probabilities_of_large_numbers_have_all_digits(name: str) -> None:
    module = getattr(stats, name)
    function = module.logpdf if hasattr(module, "logpdf") else module.logpmf
    *xs, want = (np.asarray(column, float) for column in zip(*STORED[name], strict=True))
    for f in (function, nnc.compile(function)):
        np.testing.assert_allclose(np.asarray(f(*xs)), want, rtol=1e-13)
    narrow = [x.astype(np.float32) for x in xs]
    exact = np.asarray(function(*(x.astype(float) for x in narrow)))
    np.testing.assert_allclose(np.asarray(function(*narrow)), exact, rtol=1e-6)


@pytest.mark.parametrize("name", STORED)
def test_derivatives_agree_with_differences_for_numbers_of_middle_size(name: str) -> None:
    discrete = not hasattr(getattr(stats, name), "logpdf")
    function = getattr(stats, name).logpmf if discrete else getattr(stats, name).logpdf
    cases = {
        "gamma": ([25.0, 3.0, 90.0], [30.0, 12.0, 40.0]),
        "poisson": ([25.0, 3.0, 90.0, 8.0], [30.0, 12.0, 40.0, 8.0]),
        "binom": ([25.0, 3.0, 90.0], [40.0, 50.0, 95.0], [0.5, 0.1, 0.9]),
        "nbinom": ([25.0, 3.0, 90.0], [40.0, 2.5, 9.0], [0.5, 0.1, 0.2]),
        "beta": ([0.5, 0.1, 0.9], [25.0, 3.0, 90.0], [30.0, 12.0, 9.0]),
    }
    x, *parameters = map(np.asarray, cases[name])
    if name == "binom":
        check_grads(lambda p: function(x, parameters[0], p), (parameters[1],), order=2, rtol=1e-4)
    elif discrete:
        check_grads(lambda *ps: function(x, *ps), tuple(parameters), order=2, rtol=1e-4, atol=1e-5)
    else:
        check_grads(function, (x, *parameters), order=2, rtol=1e-4, atol=1e-5)


def test_errors_of_stirlings_formula_join_at_their_border() -> None:
    x = np.asarray([0.5, 7.999999, 8.0, 8.000001, 100.0])
    want = [
        0.15342640972002733,
        0.010411266562035983,
        0.010411265261972096,
        0.010411263961908535,
        0.00083333055563491468,
    ]
    np.testing.assert_allclose(np.asarray(stirling_error(x)), want, atol=1e-14)


def test_deviances_are_zero_at_the_mean_and_infinite_without_one() -> None:
    x = np.asarray([3.0, 3.0, 3.0, 3.0])
    mean = np.asarray([3.0, 3.0 + 1e-9, 1.0, 0.0])
    want = [0, 1e-18 / 6, 3 * np.log(3) - 2, np.inf]
    np.testing.assert_allclose(np.asarray(deviance(nnc.numpy.asarray(x), nnc.numpy.asarray(mean))), want, rtol=1e-6)
