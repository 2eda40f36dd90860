"""Each function gives the same result at once, from its graph and under vmap, and its gradient is that of finite differences."""

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

DIFFERENTIABLE = {
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
def test_the_gradient_is_that_of_finite_differences(name):
    function, x = DIFFERENTIABLE[name]
    weights = np.random.default_rng(5).normal(size=np.shape(function(nnp.asarray(x))))

    def loss(x):
        return nnp.sum(function(x) * weights)

    gradient = np.asarray(nnc.grad(loss)(x))
    for place in [(0, 0), (1, 2), (2, 3), (0, 3)]:
        step = np.zeros_like(x)
        step[place] = 1e-6
        slope = (float(loss(nnp.asarray(x + step))) - float(loss(nnp.asarray(x - step)))) / 2e-6
        assert abs(gradient[place] - slope) < 1e-5 * (1 + abs(slope))


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
