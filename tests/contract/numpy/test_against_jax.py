"""Functions that NumPy does not have, and arguments that its functions lack, against jax.numpy."""

from __future__ import annotations

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

RNG = np.random.default_rng(12)
X = RNG.normal(size=(3, 4)).astype(np.float32)
N = RNG.integers(0, 5, (3, 4)).astype(np.int32)
IDS = np.array([2, 0, 2], np.int32)
POSITIVE = np.abs(X) + 0.1


def theirs(name):
    """The function of that name in JAX."""
    for module in (jnp, jax.nn, jax.ops, jax.scipy.special, jax.lax):
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(name)


CASES = {
    "top_k": lambda f, x: f(x, 2),
    "segment_sum": lambda f, x: f(x, IDS, 4),
    "segment_prod": lambda f, x: f(x, IDS, 4),
    "segment_max": lambda f, x: f(x, IDS, 4),
    "segment_min": lambda f, x: f(x, IDS, 4),
    "logsumexp": lambda f, x: f(x, axis=1),
    "expit": lambda f, x: f(x),
    "logit": lambda f, x: f(abs(x) / 4 + 0.1),
    "erf": lambda f, x: f(x),
    "erfc": lambda f, x: f(x),
    "erfinv": lambda f, x: f(x / 3),
    "gammaln": lambda f, x: f(abs(x) + 0.1),
    "digamma": lambda f, x: f(abs(x) + 0.1),
    "polygamma": lambda f, x: f(2, abs(x) + 0.5),
    "betaln": lambda f, x: f(abs(x) + 0.1, abs(x)[::-1] + 0.2),
    "xlogy": lambda f, x: f(x, abs(x) + 0.1),
    "xlog1py": lambda f, x: f(x, abs(x)),
    "i0e": lambda f, x: f(x * 5),
    "i1e": lambda f, x: f(x * 5),
    "i0": lambda f, x: f(x),
    "cummax": lambda f, x: f(x, axis=1),
    "cummin": lambda f, x: f(x, axis=0),
    "matvec": lambda f, x: f(x, x[0]),
    "vecmat": lambda f, x: f(x[:, 0], x),
    "nonzero": lambda f, x: f(x > 0, size=20, fill_value=-1),
    "argwhere": lambda f, x: f(x > 0, size=3),
    "flatnonzero": lambda f, x: f(x > 0, size=3, fill_value=9),
    "unique": lambda f, x: f((x * 2).astype("int32"), size=9, fill_value=-7),
    "union1d": lambda f, x: f((x * 2).astype("int32"), (x * 3).astype("int32"), size=12, fill_value=-7),
    "bincount": lambda f, x: f((x[0] > 0).astype("int32"), length=4),
    "convolve": lambda f, x: f(x[0], x[1], mode="same"),
    "select": lambda f, x: f([x > 1, x > 0], [x, x * 2], 0.5),
    "piecewise": lambda f, x: f(x, [x < -1, x >= 1], [-1.0, 1.0]),
    "quantile": lambda f, x: f(x, 0.3, axis=1, method="nearest"),
    "nanmedian": lambda f, x: f(x, axis=0),
    "fill_diagonal": lambda f, x: f(x, 5.0, inplace=False),
    "place": lambda f, x: f(x, x > 0, np.array([1.0, 2.0], np.float32), inplace=False),
    "packbits": lambda f, x: f(x > 0, axis=1),
    "spacing": lambda f, x: f(x),
    "kaiser": lambda f, x: f(7, 3.0),
    "trapezoid": lambda f, x: f(x, axis=0),
    "vectorize": lambda f, x: f(lambda a, b: (a * b).sum(), signature="(n),(n)->()")(x, x[0]),
    "apply_along_axis": lambda f, x: f(lambda v: v / v.sum(), 1, x),
    "polyfit": lambda f, x: f(x[0], x[1], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_function_agrees_with_jax(name):
    case = CASES[name]
    want = case(theirs(name), jnp.asarray(X))
    got = case(getattr(nnp, name), nnp.asarray(X))
    several = isinstance(want, (tuple, list))
    assert isinstance(got, (tuple, list)) == several
    for one, other in zip(got if several else [got], want if several else [want], strict=True):
        assert one.shape == other.shape
        if np.asarray(other).dtype.kind == "f":
            assert one.dtype == other.dtype
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-4, atol=1e-5)


CONVENTIONS = {  # without sign, which JAX takes for constant
    "abs": lambda xp, z: xp.abs(z).sum(),
    "angle": lambda xp, z: xp.angle(z).sum(),
    "real": lambda xp, z: (xp.real(z) ** 2).sum(),
    "conj": lambda xp, z: xp.real(z * xp.conj(z)).sum(),
    "power": lambda xp, z: xp.imag(z**3).sum(),
    "sqrt": lambda xp, z: xp.real(xp.sqrt(z)).sum(),
    "mean": lambda xp, z: xp.abs(xp.mean(z * z)),
    "var": lambda xp, z: xp.var(z),
    "fft": lambda xp, z: xp.abs(xp.fft.fft(z)).sum(),
    "where": lambda xp, z: xp.real(xp.where(xp.real(z) > 0, z, xp.conj(z)) * z).sum(),
}


@pytest.mark.parametrize("name", CONVENTIONS)
def test_gradients_of_complex_arguments_follow_jaxs_convention(name):
    z = (X[0] + 1j * X[1]).astype(np.complex64)
    want = jax.grad(lambda z: CONVENTIONS[name](jnp, z))(z)
    got = nnc.grad(lambda z: CONVENTIONS[name](nnp, z))(z)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-4, atol=1e-5)


TIES = {
    "maximum": lambda xp, x: xp.maximum(x, x).sum(),
    "max": lambda xp, x: xp.max(x * 0),
    "abs at 0": lambda xp, x: xp.abs(x * 0).sum(),
    "clip at a limit": lambda xp, x: xp.clip(x * 0 + 1, 0, 2).sum(),
    "sinc": lambda xp, x: xp.sinc(x * 0).sum(),
    "power": lambda xp, x: ((x * 0) ** 2).sum(),
}


@pytest.mark.parametrize("name", TIES)
def test_subgradients_are_those_of_jax(name):
    want = jax.grad(lambda x: TIES[name](jnp, x))(X[0])
    np.testing.assert_allclose(np.asarray(nnc.grad(lambda x: TIES[name](nnp, x))(X[0])), np.asarray(want), atol=1e-6)
