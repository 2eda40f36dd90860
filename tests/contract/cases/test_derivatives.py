"""Derivatives that once were wrong: in tails, at singular points, of ties, of powers of norms, and beside padding of NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
import nnc.scipy.linalg as sl
import nnc.scipy.special as s
import nnc.scipy.stats as st
from nnc import grad, nn

NDArray = np.ndarray[Any, Any]
la = nnp.linalg
ORIGIN = np.zeros(2)
EYE = np.eye(2)


def f(x: Any) -> Any:
    return nnp.asarray(x, "float64")


def times(function: Callable[..., Any], n: int) -> Callable[..., Any]:
    """The n-th derivative."""
    for _ in range(n):
        function = grad(function)
    return function


def close(got: Any, want: Any, rtol: float = 1e-12) -> None:
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=rtol, atol=0)


def test_slopes_of_saturated_functions_keep_their_tails() -> None:
    close(grad(nnp.tanh)(10.0), 8.244614512802e-09, 1e-6)
    close(grad(nn.sigmoid)(20.0), 2.061153613942e-09, 1e-6)
    close(grad(nnp.expm1)(-20.0), 2.061153622439e-09, 1e-6)
    small = np.exp(-40.0)
    for function, factor in ((nn.elu, 1), (nn.selu, 1.0507009873554805 * 1.6732632423543772), (nn.celu, 1)):
        close(grad(function)(f(-40.0)), small * factor)
    for function, sign in ((nn.softplus, 1), (nn.log_sigmoid, -1)):
        for x in (-40.0, 40.0):
            close(times(function, 2)(f(x)), sign * small)
    close(
        np.asarray(grad(nnp.tanh, holomorphic=True)(nnp.asarray(30 + 1j))).real, 4 * np.exp(-60.0) * np.cos(2.0), 1e-5
    )


def test_slopes_of_inverse_functions_do_not_overflow() -> None:
    close(grad(nnp.arcsinh)(1e22), 1e-22, 1e-6)
    close(grad(nnp.arccosh)(1e22), 1e-22, 1e-6)
    close(grad(nn.soft_sign)(f(1e22)), 1e-44)
    close(grad(nnp.exp2)(f(1024.0000000000002)), 1.2460659279419801e308)
    for function, want in ((nnp.arcsinh, 5e-21 - 5e-21j), (nnp.arctan, -5e-41j), (nnp.arctanh, 5e-41j)):
        slope = grad(function, holomorphic=True)(nnp.asarray(1e20 * (1 + 1j), "complex128"))
        np.testing.assert_allclose(np.asarray(slope), want, rtol=1e-12, atol=1e-60)


def test_sinc_and_bessel_functions_have_their_derivatives_near_zero() -> None:
    close(times(nnp.sinc, 2)(np.float32(1e-4)), -(np.pi**2) / 3, 1e-5)
    close(grad(nnp.sinc)(1e-3), -3.28987e-3, 1e-5)
    close(times(nnp.sinc, 4)(f(0.0)), np.pi**4 / 5)
    close(times(lambda x: s.sici(x)[0], 3)(f(0.0)), -1 / 3)
    for function, n in ((s.i1, 3), (s.i0, 4), (nnp.i0, 4)):
        close(times(function, n)(f(0.0)), 0.375)
    close([s.i0(90.0), grad(s.i0)(90.0)], [5.139238625e37, 5.110607e37], 1e-6)
    close([nnp.i0(f(713.0)), grad(nnp.i0)(f(713.0))], [6.705128263602624e307, 6.700424555e307], 1e-9)
    close([grad(s.i0e)(1e6), grad(s.i0e)(1e8)], [-1.994712e-10, -1.994711e-13], 1e-6)


def test_shares_of_many_ties_sum_to_one_in_sixteen_bits() -> None:
    n, places = 70000, np.zeros(70000, np.int32)
    functions: list[Callable[[Any], Any]] = [
        nnp.max, nnp.min, nnp.nanmax, nnp.nanmin, lambda x: la.norm(x, np.inf),
        lambda x: nnp.segment_max(x, places, 1)[0], lambda x: nnp.zeros(1, x.dtype).at[places].max(x)[0],
        lambda x: nnp.zeros(1, x.dtype).at[places].add(2).at[places].min(x)[0], lambda x: nnp.cummax(x)[-1],
        lambda x: nn.max_pool(x[None, None], (n,), layout="NCH")[0, 0, 0],
    ]  # fmt: skip
    for function in functions:
        for dtype in ("float16", "bfloat16"):
            shares = np.asarray(grad(function)(nnp.ones(n, dtype))).astype(np.float64)
            assert abs(shares.sum() - 1) < 0.01


def test_logsumexp_moves_with_weights_of_zero_and_with_infinities() -> None:
    def by_weights(x: Any) -> Any:
        return grad(lambda b: nnp.logsumexp(x, b=b))(nnp.asarray([0.0, 1.0]))

    close(by_weights(nnp.zeros(2)), [1, 1])
    close(by_weights(nnp.asarray([1.0, 0.0])), [np.e, 1], 1e-6)
    for bad in (np.nan, np.inf, 1e30):  # an element without weight does not count
        x, b = nnp.asarray([bad, 2.0]), nnp.asarray([0.0, 3.0])
        close(nnp.logsumexp(x, b=b), 2 + np.log(3), 1e-6)
        close(grad(lambda x, b=b: nnp.logsumexp(x, b=b))(x), [0, 1])
    close(grad(nnp.logsumexp)(nnp.asarray([np.inf, 0.0])), [1, 0])
    close(grad(nnp.logsumexp)(nnp.asarray([-np.inf, 0.0])), [0, 1])


def test_the_incomplete_gamma_function_moves_at_its_mean() -> None:
    for a, want in ((49.0, -0.05708882371833068), (100.0, -0.03992749785778605), (1e4, -0.003989456049453669)):
        close(grad(s.gammainc)(f(a), f(a)), want, 1e-11)
        close(grad(s.gammaincc)(f(a), f(a)), -want, 1e-11)
    close(grad(lambda n: st.chi2.sf(f(200.0), n))(f(200.0)), 0.5 * 0.03992749785778605, 1e-11)
    close(grad(lambda a: st.gamma.cdf(f(100.0), a))(f(100.0)), -0.03992749785778605, 1e-11)
    close(grad(lambda m: st.poisson.cdf(f(99.0), m))(f(100.0)), -0.03986099680914714, 1e-11)


def test_beta_moves_where_only_its_denominator_has_a_pole() -> None:
    close(grad(s.beta)(f(-2.5), f(1.5)), 0.8377580409572782)
    close(grad(s.beta, 1)(f(-2.5), f(0.5)), -3.351032163829113)
    close(grad(grad(s.beta))(f(-2.5), f(1.5)), 1.1399747396329076, 1e-11)
    close(grad(s.beta)(f(-200.5), f(1.5)), 0.0009825097580059324, 1e-11)


def test_the_exponential_of_a_matrix_with_huge_elements_above_its_diagonal() -> None:
    x, slope = nnc.jvp(sl.expm, (f([[0.0, 1e10], [0.0, 0.0]]),), (f(EYE),))
    close(x, [[1, 1e10], [0, 1]])
    close(slope, [[1, 1e10], [0, 1]])
    x, slope = nnc.jvp(sl.expm, (f([[0.0, 1e10], [1e-10, 0.0]]),), (f(EYE),))
    close(slope, [[np.cosh(1), 1e10 * np.sinh(1)], [1e-10 * np.sinh(1), np.cosh(1)]], 1e-11)
    assert np.isnan(np.asarray(nnc.jvp(sl.expm, (f([[1e9]]),), (f([[1.0]]),))[1])).all()  # not 0 where the value is NaN


SMOOTH: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "norm": (lambda v: la.norm(v) ** 2, 2 * EYE),
    "norm by arrays": (lambda v: nnp.sum(la.norm(v[None], axis=-1, keepdims=True) ** 2), 2 * EYE),
    "norm, floating exponent": (lambda v: la.norm(v) ** 2.0, 2 * EYE),
    "norm, product": (lambda v: la.norm(v) * la.norm(v), 2 * EYE),
    "norm, fourth power": (lambda v: la.norm(v) ** 4, 0 * EYE),
    "norm, third power": (lambda v: la.norm(v) ** 3, 0 * EYE),
    "norm, scaled": (lambda v: nnp.square(3 * la.norm(v) / 2), 4.5 * EYE),
    "norm, Frobenius": (lambda v: la.matrix_norm(v[None]) ** 2, 2 * EYE),
    "kernel": (lambda v: nnp.exp(-(la.norm(v - ORIGIN) ** 2)), -2 * EYE),
    "cosh": (lambda v: nnp.cosh(la.norm(v)), EYE),
    "cos": (lambda v: nnp.cos(2 * la.norm(v)), -4 * EYE),
    "sqrt": (lambda v: nnp.sqrt(nnp.sum(v * v)) ** 2, 2 * EYE),
    "hypot": (lambda v: nnp.hypot(v[0], v[1]) ** 2, 2 * EYE),
    "complex size": (lambda v: abs(v[0] + 1j * v[1]) ** 2, 2 * EYE),
    "tanh, product": (lambda v: la.norm(v) * nnp.tanh(la.norm(v)), 2 * EYE),
    "tanh of a multiple": (lambda v: -la.norm(v) * nnp.tanh(3 * la.norm(v) / 2), -3 * EYE),
    "tanh of sin, square": (lambda v: nnp.tanh(nnp.sin(2 * la.norm(v))) ** 2, 8 * EYE),
    "erf, product": (lambda v: s.erf(la.norm(v)) * nnp.arctan(la.norm(v)), 4 / np.sqrt(np.pi) * EYE),
    "abs, tanh": (lambda v: nnp.sum(abs(v) * nnp.tanh(abs(v))), 2 * EYE),
    "abs, negative": (lambda v: nnp.sum(abs(v) * -abs(v)), -2 * EYE),
    "abs": (lambda v: nnp.sum(abs(v) ** 2), 2 * EYE),
    "abs, gathered": (lambda v: nnp.sum(abs(v)[np.array([1, 0])] ** 2), 2 * EYE),
    "abs, joined": (lambda v: nnp.sum(nnp.stack([abs(v), v]) ** 2), 4 * EYE),
    "abs, chosen": (lambda v: nnp.sum(nnp.where(v > 0, abs(v), 2 * v) ** 2), 8 * EYE),
    "variance": (nnp.var, np.array([[0.5, -0.5], [-0.5, 0.5]])),
    "deviation": (lambda v: nnp.std(v) ** 2, np.array([[0.5, -0.5], [-0.5, 0.5]])),
    "abs, square": (lambda v: nnp.sum(nnp.square(abs(v))), 2 * EYE),
    "abs, product": (lambda v: nnp.sum(abs(v) * abs(v)), 2 * EYE),
    "root of a square": (lambda v: nnp.sum(nnp.sqrt(v**2) ** 2), 2 * EYE),
    "root of a fourth power": (lambda v: nnp.sum(nnp.sqrt(v**4)), 2 * EYE),
    "power of a square": (lambda v: nnp.sum(((v**2) ** 0.5) ** 2), 2 * EYE),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_functions_of_factors_that_are_not(name: str) -> None:
    function, want = SMOOTH[name]
    for hessian in (
        nnc.hessian(function), nnc.jacrev(grad(function)), nnc.jacfwd(nnc.jacfwd(function)), nnc.compile(nnc.hessian(function)),
    ):  # fmt: skip
        np.testing.assert_allclose(np.asarray(hessian(f(ORIGIN))), want, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(
        np.asarray(nnc.vmap(nnc.hessian(function))(f([ORIGIN])))[0], want, rtol=1e-12, atol=1e-300
    )
    np.testing.assert_array_equal(np.asarray(grad(function)(f(ORIGIN))), 0)


def test_powers_of_roots_in_loops_calls_and_checkpoints() -> None:
    def looped(v: Any) -> Any:
        return nnc.fori_loop(0, 2, lambda i, total: total + la.norm(v) ** 2, f(0.0))

    np.testing.assert_allclose(np.asarray(nnc.hessian(looped)(f(ORIGIN))), 4 * EYE)
    compiled = nnc.compile(la.norm)
    for function in (
        lambda v: compiled(v) ** 2,
        nnc.compile(lambda v: la.norm(v) ** 2),
        nnc.checkpoint(lambda v: la.norm(v) ** 2),
    ):
        np.testing.assert_allclose(np.asarray(nnc.hessian(function)(f(ORIGIN))), 2 * EYE)


def test_roots_of_powers_and_powers_of_roots_in_one_dimension() -> None:
    for function in (
        lambda x: nnp.cbrt(x**3),
        lambda x: nnp.cbrt(x) ** 3,
        lambda x: nnp.sqrt(x) ** 2,
        lambda x: nnp.sqrt(x) * nnp.sqrt(x),
    ):
        assert grad(function)(f(0.0)) == 1 and nnc.compile(grad(function))(f(0.0)) == 1
    for function in (lambda x: abs(x) ** 4, lambda x: la.norm(nnp.stack([x])) ** 4):
        assert times(function, 4)(f(0.0)) == 24
    assert grad(lambda x: abs(x) * nnc.stop_gradient(abs(x)))(f(3.0)) == 3  # the other factor is a constant
    chosen = abs
    for _ in range(40):  # whose branches share a root
        chosen = (lambda inner: lambda x: (lambda y: nnp.where(y > 1, y, 0.5 * y))(inner(x)))(chosen)
    assert grad(grad(lambda x: chosen(x) ** 2))(f(0.0)) == 2 * 0.25**40
    assert grad(abs)(f(0.0)) == 0 and grad(lambda x: nnp.sqrt(x**2))(f(0.0)) == 0  # kinks keep the least slope
    assert grad(lambda x: nnp.sqrt(x**2))(f(-3.0)) == -1


def finite_alike(function: Callable[..., Any], padded: Any, clean: Any) -> None:
    """Checks that gradients are finite, and those without padding of NaN."""
    got, want = (nnc.tree.leaves(function(x)) for x in (padded, clean))
    for g, w in zip(got, want, strict=True):
        if hasattr(g, "dtype"):
            assert np.isfinite(np.asarray(g)).all()
            np.testing.assert_array_equal(np.asarray(g), np.asarray(w))


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_padding_reaches_no_gradient_of_recurrent_layers(kind: Any) -> None:
    x = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    lengths, clean = np.array([2, 4]), x.copy()
    clean[0, 2:] = 0
    for bad in (np.nan, np.inf):
        x[0, 2:] = bad
        layer = kind(3, 4, key=nnc.random.key(0), num_layers=2, bidirectional=True)
        finite_alike(lambda x, m=layer: grad(lambda m: nnp.sum(m(x, lengths=lengths)[0] ** 2))(m), x, clean)
        finite_alike(lambda x, m=layer: grad(lambda x: nnp.sum(m(x, lengths=lengths)[0] ** 2))(x), x, clean)
    m = nn.LSTM(1, 1, key=nnc.random.key(0))
    one = np.array([[[1.0], [np.nan]]], np.float32)
    slopes = grad(lambda m: nnp.sum(m(one, lengths=np.array([1]))[0]))(m).layers[0][0].weight_ih
    assert np.isfinite(np.asarray(slopes)).all()


@pytest.mark.parametrize("dropout_rate", [0.0, 0.5])
@pytest.mark.parametrize("queries", [4, 20])
def test_nan_under_a_mask_reaches_no_gradient_of_attention(queries: int, dropout_rate: float) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, n, heads, 8)).astype(np.float32) for n, heads in ((queries, 4), (24, 2), (24, 2)))
    mask = np.ones((2, 1, queries, 24), bool)
    mask[0, ..., 20:], mask[1, :, 2] = False, False
    options = {"dropout_rate": dropout_rate, "dropout_key": nnc.random.key(1)}
    lengths = {"key_value_seq_lengths": np.array([20, 24]), "query_seq_lengths": np.array([queries, queries - 1])}
    for settings, row in (({"mask": mask}, 2), (lengths, queries - 1)):
        bad = [x.copy() for x in (q, k, v)]
        bad[0][1, row], bad[1][0, 20:], bad[2][0, 20:] = np.nan, np.nan, np.inf

        def slopes(x: Any, settings: Any = settings) -> Any:
            return grad(
                lambda q, k, v: nnp.sum(nn.dot_product_attention(q, k, v, **settings, **options) ** 2), (0, 1, 2)
            )(*x)

        finite_alike(slopes, bad, [q, k, v])


def test_padding_of_nan_reaches_no_weights_of_multi_head_attention() -> None:
    layer = nn.MultiHeadAttention(8, 2, key=nnc.random.key(0))
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype(np.float32)
    valid, bad = np.ones((2, 5), bool), x.copy()
    valid[0, 3:], bad[0, 3:] = False, np.nan

    def slopes(x: NDArray) -> Any:
        def loss(layer: Any) -> Any:
            return nnp.sum(nnp.where(valid[..., None], layer(x, mask=valid[:, None, None, :]) ** 2, 0))

        return grad(loss)(layer)

    finite_alike(slopes, bad, x)


def test_masked_reductions_of_nan_have_finite_gradients() -> None:
    x, mask = f([1.0, 2.0, np.nan, np.inf]), np.array([True, True, False, False])
    for name in ("sum", "mean", "var", "std", "prod", "logsumexp"):
        slopes = np.asarray(grad(lambda x, n=name: getattr(nnp, n)(x, where=mask))(x))
        assert np.isfinite(slopes).all() and (slopes[2:] == 0).all() and (slopes[:2] != 0).any()
