"""Distributions agree with SciPy in values, and with differences in derivatives; compiled and mapped as at once."""

from __future__ import annotations

import importlib
import inspect
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.stats

import nnc
import nnc.numpy as nnp
from nnc.base import dtypes
from nnc.errors import ArgumentTypeError, DTypeError, ShapeError
from nnc.scipy import stats
from nnc.scipy.stats.evaluate import log1mexp, log_of
from nnc.testing import check_grads
from tests.unit.scipy.stats.distributions import PAIRS, QUANTILES, ROWS, SLOW, bounds, exact, functions_of, operands

distributions = pytest.mark.parametrize("name", ROWS)
pairs = pytest.mark.parametrize(("name", "function"), PAIRS)
quick_pairs = pytest.mark.parametrize(("name", "function"), [pair for pair in PAIRS if pair not in SLOW])


def ours(name: str, function: str) -> Any:
    return getattr(getattr(stats, name), function)


@pairs
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_values_are_scipys_to_a_few_roundings_of_the_operands(name: str, function: str, dtype: Any) -> None:
    xs = operands(name, function, dtype)
    got, want = ours(name, function)(*xs), exact(name, function)(*xs)
    assert got.dtype == dtype and got.shape == want.shape
    got = np.asarray(got, np.float64)
    with np.errstate(over="ignore"):
        rounded = want.astype(dtype)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
    info = np.finfo(dtype)
    allowed = ROWS[name].ulps.get(function, 4) * info.eps * bounds(exact(name, function), xs) + 4 * info.tiny
    with np.errstate(all="ignore"):
        excess = np.where(finite, np.abs(got - want) / allowed, 0)
    at = np.unravel_index(excess.argmax(), excess.shape)
    assert excess[at] <= 1, (
        f"{excess[at]:.3} times the bound: {got[at]} for {want[at]} at {[np.broadcast_to(x, want.shape)[at] for x in xs]}"
    )


@pairs
def test_infinities_nan_and_invalid_parameters_have_scipys_results(name: str, function: str) -> None:
    row = ROWS[name]
    q = [-0.1, 0.0, 1.0, 1.1, np.nan]
    if row.discrete:
        q.remove(0.0)  # SciPy has the number before the least count
    x, inside = (q, 0.5) if function in QUANTILES else ([np.inf, -np.inf, np.nan], row.numbers[3])
    place = (0.0,) if row.discrete else (0.0, 1.0)
    cases = [(number, *row.shapes[0], *place) for number in x]
    cases += [(inside, *shape, *place) for shape in (*row.invalid, (np.nan,) * len(row.shapes[0])) if shape]
    if not row.discrete:
        cases += [(inside, *row.shapes[0], 0.0, scale) for scale in (0.0, -1.0, np.nan)]
    xs = tuple(np.asarray(column, float) for column in zip(*cases, strict=True))
    want = exact(name, function)(*xs)
    if function in row.no_limits:  # SciPy's NaN is the difference of two infinities
        want = np.where(np.isinf(xs[0]), -np.inf if function[:3] == "log" else 0, want)
    np.testing.assert_array_equal(np.asarray(ours(name, function)(*xs)), want, err_msg=str(cases))


def at_smooth_points(name: str, function: str) -> tuple[np.ndarray, ...]:
    """Operands where values are finite, at some distance from ends and kinks."""
    rng = np.random.default_rng(0)
    x, *whole = np.broadcast_arrays(*operands(name, function, edges=False))
    if function not in QUANTILES and not ROWS[name].discrete:
        x = x + 0.01 * whole[-1] * (1 + rng.random(x.shape))
    want = exact(name, function)(x, *whole)
    keep = np.isfinite(want) & (np.abs(want) < 1e4) & ((np.abs(want) > 1e-3) | (function[:3] == "log"))
    if function not in QUANTILES:
        y = x - whole[-1] if ROWS[name].discrete else (x - whole[-2]) / whole[-1]
        keep &= (np.abs(y) < 20) & (np.abs(y) > 2e-3)
    else:
        keep &= (x > 1e-3) & (x != 0.5)
    return tuple(v[keep] for v in (x, *whole))


@quick_pairs
def test_derivatives_agree_with_differences(name: str, function: str) -> None:
    if ROWS[name].discrete and function not in ("logpmf", "pmf", "cdf", "sf", "logcdf", "logsf"):
        return  # a step function
    x, *parameters = at_smooth_points(name, function)
    assert x.size > 3
    f = ours(name, function)
    if ROWS[name].discrete:
        n = ROWS[name].whole
        shapes = tuple(parameters[n:-1])
        check_grads(lambda *ps: f(x, *parameters[:n], *ps, parameters[-1]), shapes, order=1, rtol=2e-5, atol=1e-5)
    else:
        check_grads(f, (x, *parameters), order=1, rtol=2e-5, atol=1e-5)


@quick_pairs
def test_derivatives_outside_the_support_are_zero_and_none_is_nan(name: str, function: str) -> None:
    if function in QUANTILES:
        return
    row = ROWS[name]
    rest = (0.0,) if row.discrete else (0.0, 1.0)
    x = np.asarray([-np.inf, *row.numbers, np.inf])
    parameters = tuple(np.full(x.shape, float(v)) for v in (*row.shapes[0], *rest))
    places = tuple(range(1 + len(parameters)))
    gradients = nnc.grad(lambda *xs: ours(name, function)(*xs).sum(), argnums=places)(x, *parameters)
    for gradient in gradients:
        assert not np.isnan(np.asarray(gradient)).any()
        assert not np.asarray(gradient)[[0, -1]].any()


@distributions
def test_compiled_and_mapped_functions_have_the_values_of_eager_ones(name: str) -> None:
    for kind in (True, False):
        others = [f for f in functions_of(name) if (name, f) not in SLOW and f not in ("sf", "logsf")]
        functions = [f for f in others if (f in QUANTILES) == kind]
        if not functions:
            continue
        xs = operands(name, functions[0])

        def all_of(*xs: Any, functions: list[str] = functions) -> list[Any]:
            return [ours(name, f)(*xs) for f in functions]

        wanted = [np.asarray(y) for y in all_of(*xs)]
        axes = (0,) + (None,) * (len(xs) - 1)
        for found in (nnc.compile(all_of)(*xs), nnc.vmap(all_of, in_axes=axes)(*xs)):
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_allclose(np.asarray(one), other, rtol=1e-13, atol=1e-13)


@distributions
def test_narrow_floats_are_computed_in_float32_and_integers_are_converted(name: str) -> None:
    for function in functions_of(name)[-2:]:
        xs = operands(name, function)
        for dtype in (dtypes.float16, dtypes.bfloat16):
            narrow = [nnp.asarray(x).astype(dtype) for x in xs]
            got = ours(name, function)(*narrow)
            wide = ours(name, function)(*(x.astype(dtypes.float32) for x in narrow))
            assert got.dtype == dtype
            values = np.asarray(got.astype(dtypes.float32))
            want = np.asarray(wide.astype(dtype).astype(dtypes.float32))
            np.testing.assert_allclose(values, want, rtol=float(nnp.finfo(dtype).eps), atol=1e-7)
        integers = (np.nan_to_num(x, posinf=9, neginf=-9).astype(int) for x in xs)
        assert ours(name, function)(*integers).dtype == np.float32


def test_the_entropy_of_poissons_distribution_is_that_of_its_sum() -> None:
    mu = np.asarray([0.0, 1e-3, 0.5, 3.0, 20.0, 59.9, 60.1, 200.0, 2000.0, np.nan, -1.0])
    k = np.arange(4000)[:, None]
    log_mass = scipy.stats.poisson.logpmf(k, mu)
    want = -np.sum(np.exp(log_mass) * np.maximum(log_mass, -1e300), axis=0)
    for f in (stats.poisson.entropy, nnc.compile(stats.poisson.entropy)):
        np.testing.assert_allclose(np.asarray(f(mu)), want, rtol=1e-12)
    got = stats.poisson.entropy(mu.astype(np.float32), np.ones((2, 1), np.float32))
    assert got.dtype == np.float32 and got.shape == (2, len(mu))
    np.testing.assert_allclose(np.asarray(got[1]), want, rtol=1e-6)
    check_grads(stats.poisson.entropy, (mu[1:9],), order=1, rtol=1e-5)


def test_operands_are_real_and_broadcast() -> None:
    with pytest.raises(DTypeError, match=r"cauchy\.logpdf"):
        stats.cauchy.logpdf(1j)
    with pytest.raises(ShapeError, match=r"pareto\.cdf"):
        stats.pareto.cdf(np.ones(3), np.ones(2))
    assert stats.pareto.cdf(np.ones((3, 1)), np.ones(2), 0.0, np.ones((4, 1, 1))).shape == (4, 3, 2)


def test_wrong_arguments_are_worded_with_the_function_that_was_called() -> None:
    with pytest.raises(ArgumentTypeError, match=r"logpdf: it does not take .* missing a required argument: 'x'"):
        stats.norm.logpdf()  # type: ignore[call-arg]
    with pytest.raises(ArgumentTypeError, match=r"ppf: it does not take .* too many positional arguments"):
        stats.geom.ppf(0.5, 0.5, 0, 1)  # type: ignore[call-arg]
    with pytest.raises(ArgumentTypeError, match=r"cdf: it has no argument 'mu'"):
        stats.gamma.cdf(1.0, mu=2)  # type: ignore[call-arg]


def test_functions_are_documented_under_their_own_names() -> None:
    text = inspect.getdoc(stats.wrapcauchy.ppf)
    assert text is not None and text.startswith(
        "Returns the number up to which lies the probability q, the inverse of `cdf`."
    )
    assert "loc + 2 scale arctan(" in text and "    c: concentration, above 0 and below 1.\n" in text
    assert (
        str(inspect.signature(stats.t.cdf))
        == "(x: 'ArrayLike', df: 'ArrayLike', loc: 'ArrayLike' = 0, scale: 'ArrayLike' = 1) -> 'Array'"
    )
    assert (stats.t.cdf.__module__, stats.t.cdf.__qualname__) == ("nnc.scipy.stats.t", "cdf")
    assert pickle.loads(pickle.dumps(stats.t.cdf)) is stats.t.cdf


def test_modules_are_found_by_import() -> None:
    assert importlib.import_module("nnc.scipy.stats.cauchy") is stats.cauchy is nnc.scipy.stats.cauchy
    assert "cauchy" in dir(stats) and dir(stats.cauchy) == stats.cauchy.__all__


def test_logarithms_of_both_tails_have_the_derivatives_of_the_smaller_one() -> None:
    p = np.asarray([1e-3, 0.3, 0.5, 0.8, 0.999])
    check_grads(lambda p: log_of(p, 1 - p), (p,), order=1, rtol=1e-4)
    q = np.asarray([1e-30, 1e-12])
    np.testing.assert_allclose(np.asarray(log_of(1 - q, q)), -q, rtol=1e-11)
    y = np.asarray([1e-20, 0.3, 0.7, 40.0])
    np.testing.assert_allclose(np.asarray(log1mexp(y)), [np.log(1e-20), *np.log1p(-np.exp(-y[1:]))], rtol=1e-14)
    check_grads(log1mexp, (y[1:],), order=2, rtol=1e-5)


@pytest.mark.parametrize("name", ["geom", "bernoulli"])
def test_quantiles_of_counts_at_the_ends(name: str) -> None:
    q = np.array([0.0, 1.0, 0.7, 0.3, 1e-300])
    for loc in (0, 2):
        want = getattr(scipy.stats, name).ppf(q, 0.3, loc)
        np.testing.assert_array_equal(np.asarray(getattr(stats, name).ppf(q, 0.3, loc)), want)
