"""Each function gives the same result at once, from its graph and mapped; derivatives agree with finite differences."""

from __future__ import annotations

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp

RNG = np.random.default_rng(4)
X = RNG.normal(size=(3, 4))
POSITIVE = RNG.uniform(0.5, 2, (3, 4))
UNIT = RNG.uniform(-0.8, 0.8, (3, 4))
HOLES = np.where(RNG.random((3, 4)) < 0.2, np.nan, X)

UNARY = """
    negative square sin cos sinh cosh arctan asinh expm1 exp2 cbrt reciprocal log1p log2 log10 positive conj real rad2deg degrees
    radians fabs sinc erf erfc digamma expit i0e i1e i0 i1 asin acos atanh tan logit
""".split()  # noqa: SIM905
DIFFERENTIABLE = {
    **{
        name: (
            getattr(nnp, name),
            UNIT if name in ("asin", "acos", "atanh", "tan") else UNIT / 2 + 0.5 if name == "logit" else POSITIVE,
        )
        for name in UNARY
    },
    "acosh": (nnp.acosh, POSITIVE + 1.1),
    "subtract": (lambda x: nnp.subtract(x, x[0] * 2), X),
    "multiply": (lambda x: nnp.multiply(x, x[0]), X),
    "logaddexp": (lambda x: nnp.logaddexp(x, x[0] * 2), X),
    "atan2": (lambda x: nnp.atan2(x, x[::-1] + 0.1), X),
    "hypot": (lambda x: nnp.hypot(x, x[::-1] + 0.1), X),
    "copysign": (lambda x: nnp.copysign(x * x, np.ones(4)), X),
    "fmod": (lambda x: nnp.fmod(x, 0.7), X),
    "maximum": (lambda x: nnp.maximum(x, x[::-1] * 0.9 + 0.05), X),
    "heaviside": (lambda x: nnp.heaviside(x, 0.5) * x, X),
    "ldexp": (lambda x: nnp.ldexp(x, 2), X),
    "modf": (lambda x: nnp.modf(x)[0], X),
    "nansum": (lambda x: nnp.nansum(x * x, 0), X),
    "nanvar": (lambda x: nnp.nanvar(x), X),
    "nanmedian": (lambda x: nnp.nanmedian(x, 0), X),
    "ptp": (lambda x: nnp.ptp(x, 1), X),
    "cummin": (lambda x: nnp.cummin(x, 1), X),
    "logcumsum": (lambda x: nnp.cumulative_sum(nnp.exp(x), axis=1, include_initial=True), X),
    "nancumprod": (lambda x: nnp.nancumprod(x, 1), X),
    "convolve": (lambda x: nnp.convolve(x[0], x[1], "same"), X),
    "correlate": (lambda x: nnp.correlate(x.ravel(), x[0, :2], "full"), X),
    "gradient": (lambda x: nnp.gradient(x, nnp.exp(x[0]).cumsum(), axis=1, edge_order=2), X),
    "ediff1d": (lambda x: nnp.ediff1d(x, 0.0, x[0, 0]), X),
    "unwrap": (lambda x: nnp.unwrap(x * 5, axis=0), X),
    "xlogy": (lambda x: nnp.xlogy(x, x[::-1]), POSITIVE),
    "betaln": (lambda x: nnp.betaln(x, x[::-1]), POSITIVE),
    "choose": (lambda x: nnp.choose(np.array([1, 0, 1, 0]), [x, x * x]), X),
    "select": (lambda x: nnp.select([x > 0.5, x > -0.5], [x, x * x], 0), X),
    "piecewise": (lambda x: nnp.piecewise(x, [x > 0], [nnp.square, nnp.sin]), X),
    "compress": (lambda x: nnp.compress([True, False, True], x, 0), X),
    "delete": (lambda x: nnp.delete(x, 1, 0), X),
    "insert": (lambda x: nnp.insert(x, 1, x[0] * 2, 0), X),
    "put": (lambda x: nnp.put(x, [0, 5], x[0] * 3), X),
    "place": (lambda x: nnp.place(x, X > 0, x[0]), X),
    "fill_diagonal": (lambda x: nnp.fill_diagonal(x, x[0] * 2), X),
    "resize": (lambda x: nnp.resize(x, (5, 3)), X),
    "block": (lambda x: nnp.block([[x, x], [x, 2 * x]]), X),
    "unstack": (lambda x: nnp.unstack(x, axis=1)[2], X),
    "array_split": (lambda x: nnp.array_split(x, 3, 1)[1], X),
    "swapaxes": (lambda x: nnp.swapaxes(x, 0, 1), X),
    "expand_dims": (lambda x: nnp.expand_dims(x, 1), X),
    "broadcast_to": (lambda x: nnp.broadcast_to(x, (2, 3, 4)), X),
    "atleast_3d": (nnp.atleast_3d, X),
    "partition": (lambda x: nnp.partition(x, 1), X),
    "unique": (lambda x: nnp.unique(x, size=5), X),
    "percentile": (lambda x: nnp.percentile(x, 30, 0), X),
    "polyfit": (lambda x: nnp.polyfit(x[0], x[1], 1), X),
    "polymul": (lambda x: nnp.polymul(x[0], x[1], strip_zeros=False), X),
    "polydiv": (lambda x: nnp.polydiv(x[0], x[1, :2])[0], X),
    "polyint": (lambda x: nnp.polyint(x[0], 2), X),
    "poly": (lambda x: nnp.poly(x[0]), X),
    "kaiser": (lambda x: nnp.kaiser(4, x[0, 0]), POSITIVE),
    "vectorize": (lambda x: nnp.vectorize(lambda a, b: a @ b, signature="(n),(n)->()")(x, x[0]), X),
    "apply_along_axis": (lambda x: nnp.apply_along_axis(lambda v: nnp.cumprod(v), 1, x), X),
    "matvec": (lambda x: nnp.matvec(x, x[0]), X),
    "inner": (lambda x: nnp.inner(x, x), X),
    "vdot": (lambda x: nnp.vdot(x, x), X),
    "matmul": (lambda x: x @ x.T, X),
    "histogram of weights": (lambda x: nnp.histogram(X.ravel(), np.array([-1.0, 0.0, 1.0]), weights=x)[0], X),
    "at": (lambda x: nnp.asarray(x).at[np.array([0, 0]), 1].multiply(x[:2, 0]), X),
    "fft": (lambda x: nnp.abs(nnp.fft.fft(x)), X),
    "irfft": (lambda x: nnp.fft.irfft(nnp.fft.rfft(x) ** 2), X),
    "complex": (lambda x: nnp.angle(x + 1j * x[::-1] ** 2), X),
    "add": (lambda x: nnp.add(x, x[0]), X),
    "divide": (lambda x: nnp.divide(1.0, x), POSITIVE),
    "power": (lambda x: nnp.power(x, 2.5), POSITIVE),
    "square": (nnp.square, X),
    "float_power": (lambda x: nnp.float_power(x, x), POSITIVE),
    "sqrt": (nnp.sqrt, POSITIVE),
    "exp": (nnp.exp, X),
    "log": (nnp.log, POSITIVE),
    "logaddexp2": (lambda x: nnp.logaddexp2(x, 0.3), X),
    "tanh": (nnp.tanh, X),
    "sinc": (nnp.sinc, X),
    "deg2rad": (nnp.deg2rad, X),
    "abs": (nnp.abs, X),
    "where": (lambda x: nnp.where(x > 0, x * x, 3 * x), X),
    "clip": (lambda x: nnp.clip(x, -0.5, 0.5), X),
    "fmax": (lambda x: nnp.fmax(x, 0.1), X),
    "nan_to_num": (nnp.nan_to_num, X),
    "remainder": (lambda x: nnp.remainder(x, 0.7), X),
    "sum": (lambda x: nnp.sum(x, 0), X),
    "prod": (lambda x: nnp.prod(x, -1), X),
    "mean": (lambda x: nnp.mean(x, (0, 1)), X),
    "var": (lambda x: nnp.var(x, 1, ddof=1), X),
    "std": (lambda x: nnp.std(x, 0, keepdims=True), X),
    "max": (lambda x: nnp.max(x, 0), X),
    "min": (nnp.min, X),
    "initial": (lambda x: nnp.max(x, 1, initial=0.2), X),
    "masked mean": (lambda x: nnp.mean(x, 1, where=X < 0.5), X),
    "cumsum": (lambda x: nnp.cumsum(x, 1), X),
    "cumprod": (nnp.cumprod, X),
    "cummax": (lambda x: nnp.cummax(x, 0), X),
    "diff": (lambda x: nnp.diff(x, 2), X),
    "linspace": (lambda x: nnp.linspace(x[0], 1.0, 3), X),
    "full": (lambda x: nnp.full((2, 4), x[0]), X),
    "tril": (nnp.tril, X),
    "diag": (lambda x: nnp.diag(x[0], 1) @ x[0][:, None].repeat(2, 1).ravel()[:5], X),
    "diagonal": (lambda x: nnp.diagonal(x, 1), X),
    "trace": (nnp.trace, X),
    "vander": (lambda x: nnp.vander(x[0], 3), X),
    "meshgrid": (lambda x: nnp.meshgrid(x[0], x[1])[1], X),
    "reshape": (lambda x: nnp.reshape(x, (4, -1)), X),
    "transpose": (lambda x: nnp.transpose(x, (1, 0)), X),
    "moveaxis": (lambda x: nnp.moveaxis(x, 0, 1), X),
    "stack": (lambda x: nnp.stack([x, 2 * x], -1), X),
    "concatenate": (lambda x: nnp.concatenate([x, x[:1]]), X),
    "split": (lambda x: nnp.split(x, [1])[1], X),
    "roll": (lambda x: nnp.roll(x, 1, 1), X),
    "flip": (nnp.flip, X),
    "rot90": (nnp.rot90, X),
    "tile": (lambda x: nnp.tile(x, (2, 1)), X),
    "repeat": (lambda x: nnp.repeat(x, [1, 0, 2], 0), X),
    "pad": (lambda x: nnp.pad(x, 1), X),
    "reflect": (lambda x: nnp.pad(x, 2, "reflect"), X),
    "edge": (lambda x: nnp.pad(x, ((1, 2), (0, 1)), "edge"), X),
    "sort": (lambda x: nnp.sort(x, 0), X),
    "top_k": (lambda x: nnp.top_k(x, 2)[0], X),
    "take": (lambda x: nnp.take(x, [0, 2, 0], 1), X),
    "take_along_axis": (lambda x: nnp.take_along_axis(x, np.array([[1], [0], [2]])), X),
    "put_along_axis": (lambda x: nnp.put_along_axis(x, np.array([[1], [0], [2]]), x[:, :1] * 2, 1), X),
    "logsumexp": (lambda x: nnp.logsumexp(x, 1), X),
    "weighted": (lambda x: nnp.logsumexp(x, 0, b=np.array([[1.0], [0.0], [2.0]])), X),
    "erf": (nnp.erf, X),
    "erfinv": (nnp.erfinv, UNIT),
    "lgamma": (nnp.lgamma, POSITIVE),
    "segment_sum": (lambda x: nnp.segment_sum(x, np.array([1, 0, 1]), 3), X),
    "segment_max": (lambda x: nnp.segment_max(x, np.array([1, 0, 1]), 2), X),
    "median": (lambda x: nnp.median(x, 1), X),
    "quantile": (lambda x: nnp.quantile(x, np.array([0.2, 0.7]), 0), X),
    "average": (lambda x: nnp.average(x, 0, weights=[1.0, 2.0, 3.0]), X),
    "cov": (nnp.cov, X),
    "corrcoef": (nnp.corrcoef, X),
    "interp": (lambda x: nnp.interp(x, np.array([-1.0, 0.1, 1.0]), np.array([2.0, 0.0, 1.0])), UNIT),
    "cross": (lambda x: nnp.cross(x[:, :3], x[:, 1:]), X),
    "kron": (lambda x: nnp.kron(x[:1], x[:, :2]), X),
    "trapezoid": (nnp.trapezoid, X),
    "polyval": (lambda x: nnp.polyval(np.array([1.0, 2.0, 3.0]), x), X),
    "einsum": (lambda x: nnp.einsum("ij,kj->ik", x, x), X),
    "vecdot": (lambda x: nnp.vecdot(x, x[0]), X),
    "tensordot": (lambda x: nnp.tensordot(x, x, ((0, 1), (0, 1))), X),
    "outer": (lambda x: nnp.outer(x, x[0]), X),
}
DISCRETE = {
    "argmax": lambda x: nnp.argmax(x, 1),
    "argsort": nnp.argsort,
    "any": lambda x: nnp.any(x > 0, 0),
    "isclose": lambda x: nnp.isclose(x, x + 1e-9),
    "searchsorted": lambda x: nnp.searchsorted(np.array([-1.0, 0.0, 1.0]), x),
    "count_nonzero": lambda x: nnp.count_nonzero(x > 0, 1),
    "nonzero": lambda x: nnp.nonzero(x > 0, size=5)[1],
    "isin": lambda x: nnp.isin(x, x[:1]),
    "round": lambda x: nnp.round(x, 1),
    "sign": nnp.sign,
    "bincount": lambda x: nnp.bincount((x[0] > 0).astype(int), length=2),
    "histogram": lambda x: nnp.histogram(x, [-1.0, 0.0, 1.0])[0],
    "array_equal": lambda x: nnp.array_equal(x, x),
    "digitize": lambda x: nnp.digitize(x, [0.0]),
    "lexsort": lambda x: nnp.lexsort((x[0], x[1])),
    "nanmean": lambda x: nnp.nanmean(nnp.where(x > 1, np.nan, x), 0),
}
ALL = {
    **DIFFERENTIABLE,
    **{name: (function, X) for name, function in DISCRETE.items()},
}


@pytest.mark.parametrize("name", ALL)
def test_a_function_gives_the_same_at_once_from_its_graph_and_batched(name):
    function, x = ALL[name]
    eager = np.asarray(function(nnp.asarray(x)))
    (from_graph,) = nnc.make_graph(function)(x).evaluate([x])
    np.testing.assert_allclose(np.asarray(from_graph), eager, rtol=1e-12)
    batch = np.stack([x, x[::-1], x * 0.9])
    rows = [np.asarray(function(nnp.asarray(row))) for row in batch]
    np.testing.assert_allclose(np.asarray(nnc.vmap(function)(batch)), np.stack(rows), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_of_both_modes_are_those_of_finite_differences_to_second_order(name):
    function, x = DIFFERENTIABLE[name]
    nnc.testing.check_grads(function, (x,), order=2, eps=1e-4, rtol=1e-5)


SAFE = {
    "std of equal elements": (lambda x: nnp.std(x), np.ones(3), [0, 0, 0]),
    "sum of an empty exponential": (lambda x: nnp.logsumexp(x), np.full(2, -np.inf), [0, 0]),
    "logsumexp of an infinity": (lambda x: nnp.logsumexp(x), np.array([0.0, -np.inf]), [1, 0]),
    "a huge logsumexp": (lambda x: nnp.logsumexp(x), np.array([1e4, 1e4]), [0.5, 0.5]),
    "product with zeros": (lambda x: nnp.prod(x), np.array([0.0, 2.0, 3.0]), [6, 0, 0]),
    "the branch that where leaves": (
        lambda x: nnp.sum(nnp.where(x > 0, nnp.sqrt(x), 0.0)),
        np.array([0.0, 4.0]),
        [0, 0.25],
    ),
    "tied maxima": (lambda x: nnp.max(x), np.array([2.0, 2.0, 1.0]), [0.5, 0.5, 0]),
    "sinc at 0": (lambda x: nnp.sum(nnp.sinc(x)), np.zeros(2), [0, 0]),
    "mean beside NaN": (lambda x: nnp.nanmean(x), np.array([1.0, np.nan, 3.0]), [0.5, 0, 0.5]),
    "deviation beside NaN": (lambda x: nnp.nanstd(x), np.array([1.0, np.nan, 3.0]), [-0.5, 0, 0.5]),
    "square at 0": (lambda x: nnp.sum(x**2), np.zeros(1), [0]),
}


@pytest.mark.parametrize("name", SAFE)
def test_a_gradient_stays_finite(name):
    function, x, gradient = SAFE[name]
    np.testing.assert_allclose(np.asarray(nnc.grad(function)(x)), gradient, atol=1e-12)
