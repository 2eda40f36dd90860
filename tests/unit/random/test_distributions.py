"""Draws that are made of others: their values, distributions and derivatives.

The literal numbers come from jax.random (0.10.2) for the same key; where JAX is installed it is asked itself, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import nnc
import nnc.numpy as nnp
from nnc import random
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, LinAlgError, ShapeError

KEY = random.key(42)
P = [0.2, 0.3, 0.5]
COVARIANCE = [[2.0, 0.5], [0.5, 1.0]]

# name, arguments (lists and floats are float32), the draw
GOLDEN: list[tuple[str, tuple[Any, ...], Any]] = [
    ("gamma", ([0.3, 1, 7.5],), [0.43624743819236755, 0.33158406615257263, 10.490147590637207]),
    ("loggamma", ([0.001, 1, 7.5],), [-537.9234008789062, -1.1038738489151, 2.3504364490509033]),
    ("beta", ([0.5, 2], 3.0), [0.18927522003650665, 0.3128182888031006]),
    ("dirichlet", ([1.0, 2, 0.1],), [0.6315133571624756, 0.32156166434288025, 0.04692491888999939]),
    ("chisquare", ([1.0, 5],), [1.998908519744873, 3.001572847366333]),
    ("f", ([3.0, 8], 4.0), [0.7448718547821045, 1.9050049781799316]),
    ("t", ([1.0, 9],), [0.1671902984380722, -0.8320907950401306]),
    ("cauchy", ((2,),), [-0.03548463061451912, 0.6337261199951172]),
    ("logistic", ((2,),), [-0.0451694130897522, 0.7528398036956787]),
    ("lognormal", (0.5, (2,)), [0.9859473705291748, 1.2630960941314697]),
    ("pareto", (2.0, (2,)), [1.3985118865966797, 1.7672069072723389]),
    ("rayleigh", (2.0, (2,)), [2.3933022022247314, 1.7571814060211182]),
    ("weibull_min", (2.0, 1.5, (2,)), [1.5326144695281982, 2.181030750274658]),
    ("triangular", (0.0, 1.0, 3.0, (2,)), [1.2485027313232422, 1.6139203310012817]),
    ("maxwell", ((2,),), [0.553582489490509, 0.293285071849823]),
    ("wald", (2.0, (2,)), [2.226588487625122, 3.9277124404907227]),
    ("generalized_normal", (1.5, (2,)), [-0.8782375454902649, -0.2061624526977539]),
    ("ball", (2, 3), [0.29558220505714417, 0.07258553802967072]),
    ("orthogonal", (2,), [[-0.09528422355651855, 0.9954500794410706], [0.9954500794410706, 0.09528428316116333]]),
    ("multivariate_normal", ([1.0, -1], COVARIANCE), [0.9599712491035461, -0.5730453729629517]),
    ("normal", ((2,), "complex64"), [0.05368746072053909 + 0.4283398389816284j, -0.34389618039131165 + 0.5650094747543335j]),
    ("poisson", ([0.0, 0.5, 3, 12, 1000],), [0, 1, 2, 9, 955]),
    ("binomial", ([5, 30, 1000], [0.3, 0.7, 0.45]), [1.0, 20.0, 434.0]),
    ("multinomial", (20.0, P), [4.0, 4.0, 12.0]),
    ("geometric", (0.2, (4,)), [4, 2, 3, 3]),
    ("rademacher", ((6,),), [1, -1, -1, -1, 1, -1]),
]  # fmt: skip
golden = pytest.mark.parametrize(("name", "args", "numbers"), GOLDEN, ids=[row[0] for row in GOLDEN])


def float32(args: tuple[Any, ...]) -> list[Any]:
    return [np.asarray(x, np.float32) if isinstance(x, (list, float)) else x for x in args]


def draw(name: str, *args: Any, **options: Any) -> Any:
    return np.asarray(getattr(random, name)(KEY, *args, **options))


@golden
def test_draws_are_those_of_jax_up_to_rounding(name: str, args: tuple[Any, ...], numbers: Any) -> None:
    np.testing.assert_allclose(draw(name, *float32(args)), numbers, rtol=5e-6, atol=5e-7)


@golden
def test_draws_compiled_are_those_at_once(name: str, args: tuple[Any, ...], numbers: Any) -> None:
    got = nnc.compile(lambda key: getattr(random, name)(key, *float32(args)))(KEY)
    np.testing.assert_allclose(np.asarray(got), numbers, rtol=5e-6, atol=5e-7)


@golden
def test_draws_of_a_batch_of_keys_are_those_of_each(name: str, args: tuple[Any, ...], numbers: Any) -> None:
    keys = random.split(KEY, 3)
    got = np.asarray(nnc.vmap(lambda key: getattr(random, name)(key, *float32(args)))(keys))
    for key, row in zip(keys, got, strict=True):
        np.testing.assert_allclose(row, np.asarray(getattr(random, name)(key, *float32(args))), rtol=1e-5, atol=1e-6)


SHAPED = {"poisson": (60, 5), "binomial": (60, 3), "gamma": (60, 3), "loggamma": (60, 3)}


@pytest.mark.parametrize("name", SHAPED)
def test_many_draws_are_those_of_jax(name: str) -> None:
    jax = pytest.importorskip("jax")
    args = float32(next(row[1] for row in GOLDEN if row[0] == name))
    want = np.asarray(getattr(jax.random, name)(jax.random.PRNGKey(2**20), *args, SHAPED[name]))
    got = np.asarray(getattr(random, name)(random.key(2**20), *args, SHAPED[name]))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", ["eigh", "svd"])
def test_normal_vectors_are_those_of_jax_by_every_method(method: str) -> None:
    jax = pytest.importorskip("jax")
    mean, covariance = float32(([1.0, -1.0], COVARIANCE))
    want = jax.random.multivariate_normal(jax.random.PRNGKey(42), mean, covariance, (5,), None, method)
    got = random.multivariate_normal(KEY, mean, covariance, (5,), None, method)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-6)


# -- distributions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args", "law"),
    [
        ("gamma", (0.05,), stats.gamma(0.05)),
        ("gamma", (0.7,), stats.gamma(0.7)),
        ("gamma", (30.0,), stats.gamma(30.0)),
        ("beta", (0.4, 2.5), stats.beta(0.4, 2.5)),
        ("chisquare", (3.0,), stats.chi2(3.0)),
        ("f", (3.0, 7.0), stats.f(3.0, 7.0)),
        ("t", (2.5,), stats.t(2.5)),
        ("cauchy", (), stats.cauchy),
        ("logistic", (), stats.logistic),
        ("lognormal", (0.7,), stats.lognorm(0.7)),
        ("pareto", (1.5,), stats.pareto(1.5)),
        ("rayleigh", (2.0,), stats.rayleigh(scale=2.0)),
        ("weibull_min", (2.0, 1.5), stats.weibull_min(1.5, scale=2.0)),
        ("triangular", (-1.0, 0.5, 3.0), stats.triang(0.375, loc=-1, scale=4)),
        ("maxwell", (), stats.maxwell),
        ("wald", (2.0,), stats.invgauss(2.0)),
        ("generalized_normal", (1.5,), stats.gennorm(1.5)),
    ],
)
def test_real_draws_follow_their_distribution(name: str, args: tuple[Any, ...], law: Any) -> None:
    assert stats.kstest(draw(name, *args, shape=(2000,), dtype="float64"), law.cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("name", "args", "law"),
    [
        ("poisson", (0.7,), stats.poisson(0.7)),
        ("poisson", (6.0,), stats.poisson(6.0)),
        ("poisson", (15.0,), stats.poisson(15.0)),
        ("binomial", (7, 0.4), stats.binom(7, 0.4)),
        ("binomial", (60, 0.8), stats.binom(60, 0.8)),
        ("geometric", (0.3,), stats.geom(0.3)),
    ],
)
def test_counts_follow_their_distribution(name: str, args: tuple[Any, ...], law: Any) -> None:
    sample = draw(name, *args, shape=(4000,)).astype(np.int64)
    low, high = int(law.ppf(0.01)), int(law.ppf(0.99))
    values = np.arange(low, high + 1)
    found = [np.sum(sample < low), *(np.sum(sample == k) for k in values), np.sum(sample > high)]
    chances = [law.cdf(low - 1), *law.pmf(values), law.sf(high)]
    kept = [i for i, p in enumerate(chances) if p > 1e-9]
    expected = np.asarray(chances)[kept] * len(sample)
    assert stats.chisquare(np.asarray(found)[kept], expected * len(sample) / expected.sum()).pvalue > 1e-3


def test_vectors_have_the_moments_asked_for() -> None:
    for method in ("cholesky", "eigh", "svd"):
        x = draw("multivariate_normal", np.asarray([1.0, -2.0]), np.asarray(COVARIANCE), (20000,), method=method)
        np.testing.assert_allclose(x.mean(0), [1, -2], atol=0.04)
        np.testing.assert_allclose(np.cov(x.T), COVARIANCE, atol=0.08)
    shares = draw("dirichlet", np.asarray([1.0, 2, 5]), (4000,))
    np.testing.assert_allclose(shares.sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(shares.mean(0), np.asarray([1, 2, 5]) / 8, atol=0.01)
    inside = draw("ball", 2, 2, (4000,))
    assert stats.kstest((inside**2).sum(-1), "uniform").pvalue > 1e-3
    complex_numbers = draw("normal", (8000,), "complex128")
    np.testing.assert_allclose([complex_numbers.real.var(), complex_numbers.imag.var()], 0.5, atol=0.03)
    votes = draw("multinomial", 30, np.tile(np.asarray(P, np.float32), (500, 1)))
    assert (votes.sum(-1) == 30).all()
    np.testing.assert_allclose(votes.mean(0), np.asarray(P) * 30, atol=0.5)


def test_singular_covariances_are_drawn_by_their_eigenvectors() -> None:
    flat = np.asarray([[1.0, 1.0], [1.0, 1.0]])
    for method in ("eigh", "svd"):
        x = draw("multivariate_normal", np.zeros(2), flat, (5,), method=method)
        np.testing.assert_allclose(x[:, 0], x[:, 1], atol=1e-6)
        slope = nnc.grad(lambda s, m=method: random.multivariate_normal(KEY, np.zeros(2), s * flat, method=m).sum())(
            1.0
        )
        assert np.isfinite(float(slope))
    with pytest.raises(LinAlgError, match="not positive definite"):
        random.multivariate_normal(KEY, np.zeros(2), np.zeros((2, 2)))


def test_orthogonal_matrices_are_orthonormal_in_every_shape_and_dtype() -> None:
    for n, m in ((3, 3), (4, 2), (2, 4)):
        for dtype in ("float32", "float64", "complex64"):
            q = draw("orthogonal", n, (2,), dtype, m)
            assert (q.shape, q.dtype.name) == ((2, n, m), dtype)
            gram = q @ q.swapaxes(-1, -2).conj() if n <= m else q.swapaxes(-1, -2).conj() @ q
            np.testing.assert_allclose(gram, np.broadcast_to(np.eye(min(n, m)), gram.shape), atol=1e-5)


# -- derivatives -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("a", [0.02, 0.3, 1.0, 2.5, 40.0, 3000.0])
def test_gamma_draws_move_along_their_quantile_to_second_order(a: float) -> None:
    def sample(a: Any) -> Any:
        return random.gamma(KEY, a, (50,), "float64")

    def speed(a: Any) -> Any:
        return nnc.jvp(sample, (a,), (np.ones(()),))[1]

    x, step = np.asarray(sample(np.float64(a))), 1e-3 * a
    below, above = special.gammainc(a, x), special.gammaincc(a, x)

    def quantile(a: float) -> Any:
        return np.where(below < 0.5, special.gammaincinv(a, below), special.gammainccinv(a, above))

    near = [quantile(a + i * step) for i in (-2, -1, 1, 2)]
    first = (8 * (near[2] - near[1]) - (near[3] - near[0])) / (12 * step)
    second = (16 * (near[2] + near[1]) - (near[3] + near[0]) - 30 * quantile(a)) / (12 * step**2)
    np.testing.assert_allclose(np.asarray(speed(np.float64(a))), first, rtol=1e-4, atol=1e-7)
    curved = np.asarray(nnc.jvp(speed, (np.float64(a),), (np.ones(()),))[1])
    np.testing.assert_allclose(curved, second, rtol=1e-2, atol=1e-5 / a + 1e-6 * np.abs(second).max())


def test_logarithms_of_tiny_gamma_draws_move_rightly() -> None:
    a = np.float64(1e-3)  # where log x = log(u) / a nearly, so its derivative is -log x / a
    x, moved = nnc.jvp(lambda a: random.loggamma(KEY, a, (20,), "float64"), (a,), (np.ones(()),))
    np.testing.assert_allclose(np.asarray(moved), -np.asarray(x) / a, rtol=2e-2)
    assert np.isfinite(np.asarray(nnc.grad(lambda a: random.gamma(KEY, a, (20,)).sum())(np.float32(1e-3))))


def _losses(library: Any, key: Any) -> dict[str, Any]:
    def losses(a: Any) -> Any:
        return {
            "gamma": library.gamma(key, a, (30,)).sum(),
            "loggamma": library.loggamma(key, a, (30,)).sum(),
            "beta": library.beta(key, a, a * 2, (30,)).sum(),
            "t": library.t(key, a, (30,)).sum(),
            "lognormal": library.lognormal(key, a, (30,)).sum(),
            "pareto": library.pareto(key, a, (30,)).sum(),
            "rayleigh": library.rayleigh(key, a, (30,)).sum(),
            "weibull_min": library.weibull_min(key, a, a + 1, (30,)).sum(),
            "wald": library.wald(key, a, (30,)).sum(),
            "triangular": library.triangular(key, -a, a / 2, a * 2, (30,)).sum(),
        }

    return {name: lambda a, n=name: losses(a)[n] for name in losses(np.float32(1.5))}


def test_derivatives_are_those_of_jax() -> None:
    jax = pytest.importorskip("jax")
    theirs = jax.jit(jax.jacfwd(lambda a: {n: f(a) for n, f in _losses(jax.random, jax.random.PRNGKey(42)).items()}))
    ours = nnc.jacfwd(lambda a: {n: f(a) for n, f in _losses(random, KEY).items()})
    for a in (np.float32(0.7), np.float32(4.5)):
        want, got = theirs(a), ours(a)
        for name in want:
            np.testing.assert_allclose(float(got[name]), float(want[name]), rtol=2e-4, atol=2e-5, err_msg=name)


def test_gradients_of_draws_are_the_same_at_once_compiled_and_mapped() -> None:
    def loss(key: Any, a: Any) -> Any:
        return random.beta(key, a, 2.0).sum() + (random.dirichlet(key, a) * np.arange(2)).sum()

    keys, a = random.split(KEY, 3), np.asarray([0.5, 3.0])
    slope = nnc.grad(loss, 1)
    rows = [np.asarray(slope(key, a)) for key in keys]
    np.testing.assert_allclose(np.asarray(nnc.vmap(slope, (0, None))(keys, a)), rows, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(nnc.compile(slope)(keys[0], a)), rows[0], rtol=1e-6)
    assert all(np.isfinite(row).all() and row.all() for row in rows)


def test_counts_are_constant_to_derivatives() -> None:
    def loss(rate: Any) -> Any:
        return random.poisson(KEY, rate * 3) * rate + random.binomial(KEY, 5, rate / 4)

    assert float(nnc.grad(loss)(1.0)) == int(random.poisson(KEY, 3.0))


# -- loops, edges, mistakes --------------------------------------------------------------------------------------------


def test_draws_work_inside_loops() -> None:
    keys = random.split(KEY, 4)
    _, rows = nnc.scan(lambda c, key: (c, (random.poisson(key, 4.0), random.gamma(key, 2.0))), 0, keys)
    assert np.asarray(rows[0]).tolist() == [int(random.poisson(key, 4.0)) for key in keys]
    np.testing.assert_allclose(np.asarray(rows[1]), [float(random.gamma(key, 2.0)) for key in keys], rtol=1e-6)

    def step(state: Any) -> Any:
        key, part = random.split(state[0])
        return key, state[1] + random.binomial(part, 20, 0.4)

    _, total = nnc.while_loop(lambda state: state[1] < 30, step, (KEY, nnp.zeros(())))
    assert 30 <= float(total) < 50


def test_counts_at_the_edges_of_their_parameters() -> None:
    assert draw("poisson", np.asarray([0, -1, np.nan], np.float32)).tolist() == [0, -1, -1]
    edges = draw(
        "binomial", np.asarray([10, 10, -1, np.nan, np.inf, 10, 0]), np.asarray([0, 1, 0.5, 0.5, 0.5, 1.5, 0.5])
    )
    np.testing.assert_array_equal(edges, [0, 10, np.nan, np.nan, np.inf, np.nan, 0])
    assert draw("gamma", np.ones(0)).shape == draw("poisson", np.ones((2, 0))).shape[1:] == (0,)
    assert draw("gamma", 2.0).shape == draw("geometric", 0.5).shape == ()


def test_wrong_arguments_of_distributions_are_refused() -> None:
    with pytest.raises(DTypeError, match="dtype is float32"):
        random.poisson(KEY, 1.0, dtype="float32")
    with pytest.raises(DTypeError, match="dtype is uint8"):
        random.rademacher(KEY, (2,), "uint8")
    with pytest.raises(DTypeError, match="dtype is int32"):
        random.gamma(KEY, 1.0, dtype="int32")
    with pytest.raises(ShapeError, match="alpha has no axes"):
        random.dirichlet(KEY, 1.0)
    with pytest.raises(ShapeError, match="do not broadcast"):
        random.beta(KEY, np.ones(2), np.ones(3))
    with pytest.raises(ShapeError, match="do not broadcast"):
        random.weibull_min(KEY, np.ones(2), 1.0)
    with pytest.raises(ArgumentError, match="method is 'qr'"):
        random.multivariate_normal(KEY, np.zeros(2), np.eye(2), method="qr")
    with pytest.raises(ShapeError, match="do not fit"):
        random.multivariate_normal(KEY, np.zeros(3), np.eye(2))
    with pytest.raises(ArgumentError, match="negative"):
        random.orthogonal(KEY, -1)
    with pytest.raises(ArgumentTypeError, match=r"normal: it has no argument 'size'(?s:.)*write shape="):
        random.normal(KEY, size=(3,))


@pytest.mark.parametrize("draw", [random.uniform, random.normal, lambda key, shape: random.gamma(key, 1.0, shape)])
def test_shapes_that_no_array_has_are_named(draw: Any) -> None:
    for shape in ((2**63,), (2**40, 2**40)):
        with pytest.raises(ShapeError, match="an array has at most"):
            draw(random.key(0), shape)
    with pytest.raises(ArgumentError, match="has a negative size"):
        draw(random.key(0), (-1,))
