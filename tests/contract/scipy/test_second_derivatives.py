"""Second derivatives of nnc.scipy's functions are held against differences of the first ones, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
import nnc.scipy.fft as fft
import nnc.scipy.integrate as integrate
import nnc.scipy.linalg as la
import nnc.scipy.optimize as optimize
import nnc.scipy.signal as signal
import nnc.scipy.sparse.linalg as sparse
import nnc.scipy.special as sp
from nnc.scipy import stats
from nnc.scipy.cluster.vq import vq
from nnc.scipy.interpolate import RegularGridInterpolator
from nnc.scipy.ndimage import map_coordinates
from nnc.scipy.spatial.transform import Rotation
from nnc.testing import check_grads
from tests.unit.scipy.stats.distributions import ROWS
from tests.unit.scipy.stats.test_distributions import at_smooth_points, ours, quick_pairs

Function = Callable[..., Any]
Rows = dict[str, tuple[Function, tuple[Any, ...]]]
pytestmark = pytest.mark.slow
rng = np.random.default_rng(0)

X, U, Z = np.array([0.3, 1.7, 4.2]), np.array([0.2, 0.55, 0.8]), np.array([-2.3, -0.4, 1.1, 3.7])
NO_DERIVATIVE = {"bernoulli", "gammasgn"}  # numbers, and a step function
SPECIAL: Rows = {
    **{
        name: (getattr(sp, name), (Z,))
        for name in (
            *(
                "dawsn",
                "digamma",
                "erf",
                "erfc",
                "erfcx",
                "expi",
                "expit",
                "fresnel",
                "gamma",
                "gammaln",
                "i0",
                "i0e",
                "i1",
                "i1e",
            ),
            *("log_ndtr", "log_softmax", "logsumexp", "ndtr", "softmax"),
        )
    },
    **{name: (getattr(sp, name), (X,)) for name in ("entr", "exp1", "factorial", "loggamma", "sici", "spence")},
    **{name: (getattr(sp, name), (U,)) for name in ("erfinv", "logit", "ndtri")},
    **{
        name: (getattr(sp, name), (X, X[::-1] + 0.5))
        for name in (
            *("beta", "betaln", "boxcox", "boxcox1p", "gammainc", "gammaincc", "kl_div", "poch"),
            *("rel_entr", "xlog1py", "xlogy"),
        )
    },
    "bessel_jn": (lambda z: sp.bessel_jn(z, v=3), (X,)),
    "betainc": (sp.betainc, (X, X[::-1] + 0.5, U)),
    "betaincc": (sp.betaincc, (X, X[::-1] + 0.5, U)),
    "comb": (sp.comb, (X + 5, X)),
    "expn": (lambda x: sp.expn(np.array([1, 2, 5]), x), (X,)),
    "hyp1f1": (sp.hyp1f1, (X, X[::-1] + 1, Z[:3])),
    "hyp2f1": (sp.hyp2f1, (X, X[::-1], X + 1, U - 0.5)),
    "multigammaln": (lambda a: sp.multigammaln(a, 3), (X + 2,)),
    "owens_t": (sp.owens_t, (Z, Z[::-1])),
    "polygamma": (lambda x: [sp.polygamma(n, x) for n in (1, 2, 3)], (X,)),
    "sph_harm_y": (lambda t, p: sp.sph_harm_y(np.array([2, 3, 1]), np.array([1, -2, 0]), t, p), (U, X)),
    "wofz": (sp.wofz, (Z + 1j * abs(Z),)),
    "zeta": (sp.zeta, (X + 1.5, X)),
}

B = rng.normal(size=3)
A, C = rng.normal(size=(3, 3)), rng.normal(size=(3, 3))
TALL = rng.normal(size=(4, 3))
SOLID, POSITIVE = A + 4 * np.eye(3), A @ A.T + 3 * np.eye(3)
LINE, KERNEL, PICTURE, PATCH = (rng.normal(size=size) for size in (8, 3, (5, 6), (3, 2)))
TIMES = np.cumsum(abs(LINE))


def symmetric(x: Any) -> Any:
    return (x + x.T) / 2


def parts(function: Function) -> Function:
    """The function with real and imaginary parts of its results apart."""

    def both(*operands: Any) -> Any:
        found = nnc.tree.leaves(function(*operands))
        return [*map(nnp.real, found), *map(nnp.imag, found)]

    return both


OTHERS: Rows = {
    **{f"linalg.{name}": (getattr(la, name), (A,)) for name in ("det", "expm")},
    **{f"linalg.{name}": (getattr(la, name), (SOLID,)) for name in ("inv", "polar")},
    **{f"linalg.{name}": (parts(getattr(la, name)), (POSITIVE,)) for name in ("logm", "sqrtm")},
    **{
        f"linalg.{name}": (lambda x, name=name: getattr(la, name)(x) ** 3, (B,))
        for name in ("circulant", "companion", "fiedler", "hankel", "toeplitz")
    },
    "linalg.block_diag": (lambda a, b: la.block_diag(a, b) ** 3, (A, B[None])),
    "linalg.cho_solve": (lambda s, b: la.cho_solve(la.cho_factor(symmetric(s)), b), (POSITIVE, B)),
    "linalg.cholesky": (lambda s: la.cholesky(symmetric(s)), (POSITIVE,)),
    "linalg.convolution_matrix": (lambda a: la.convolution_matrix(a, 3) ** 3, (B,)),
    "linalg.eigh": (lambda s: list(map(abs, la.eigh(symmetric(s)))), (POSITIVE,)),
    "linalg.eigh_tridiagonal": (lambda d, e: la.eigh_tridiagonal(d, e, eigvals_only=True), (B, B[:2])),
    "linalg.expm_frechet": (la.expm_frechet, (A, C)),
    "linalg.leslie": (lambda f, s: la.leslie(f, s) ** 3, (B, B[:2])),
    "linalg.lu": (lambda a: la.lu(a)[1:], (SOLID,)),
    "linalg.lu_solve": (lambda a, b: la.lu_solve(la.lu_factor(a), b), (SOLID, B)),
    "linalg.qr": (lambda a: la.qr(a, mode="economic"), (TALL,)),
    "linalg.qr_multiply": (lambda a, c: la.qr_multiply(a, c, "right")[0], (SOLID, C)),
    "linalg.solve": (la.solve, (SOLID, B)),
    "linalg.solve_positive": (lambda s, b: la.solve(symmetric(s), b, assume_a="pos"), (POSITIVE, B)),
    "linalg.solve_sylvester": (la.solve_sylvester, (SOLID, POSITIVE, C)),
    "linalg.solve_triangular": (lambda a, b: la.solve_triangular(a, b, lower=True), (SOLID, B)),
    "linalg.svd": (lambda t: list(map(abs, la.svd(t, full_matrices=False))), (TALL,)),
    **{
        f"signal.{name}": (getattr(signal, name), (LINE, KERNEL))
        for name in ("convolve", "correlate", "fftconvolve", "oaconvolve")
    },
    **{f"signal.{name}": (getattr(signal, name), (PICTURE, PATCH)) for name in ("convolve2d", "correlate2d")},
    "signal.csd": (parts(lambda x, y: signal.csd(x, y, nperseg=4)[1]), (LINE, LINE[::-1])),
    "signal.detrend": (lambda x: signal.detrend(x) ** 3, (LINE,)),
    "signal.istft": (lambda x: signal.istft(signal.stft(x, nperseg=4)[2] ** 2, nperseg=4)[1], (LINE,)),
    "signal.welch": (lambda x: signal.welch(x, nperseg=4)[1], (LINE,)),
    "fft.dct": (lambda x: fft.dct(x) ** 3, (LINE,)),
    "fft.hfft": (lambda x: fft.hfft(x + 1j * x**2), (LINE,)),
    "fft.idctn": (lambda x: fft.idctn(x) ** 3, (PICTURE,)),
    "fft.rfft": (parts(lambda x: fft.rfft(x) ** 2), (LINE,)),
    **{
        f"integrate.{name}": (getattr(integrate, name), (LINE, TIMES))
        for name in ("cumulative_trapezoid", "simpson", "trapezoid")
    },
    "integrate.solve_ivp": (
        lambda y, k: integrate.solve_ivp(
            lambda t, y: nnp.sin(t) * y**2 - k * y, (0.0, 1.0), y, rtol=1e-10, atol=1e-12
        ).y[:, -1],
        (np.array([0.5, 0.2]), np.array(1.3)),
    ),
    "cluster.vq": (lambda x: vq(x, A)[1], (TALL,)),
    "interpolate.RegularGridInterpolator": (
        lambda v, p: RegularGridInterpolator((np.arange(5.0), np.arange(6.0)), v)(p),
        (PICTURE, np.array([[0.3, 1.2], [2.6, 3.3]])),
    ),
    "ndimage.map_coordinates": (
        lambda a, c: map_coordinates(a, [c, c[::-1]], order=1),
        (PICTURE, np.array([0.3, 1.4, 2.6])),
    ),
    "optimize.fixed_point": (
        lambda a: optimize.fixed_point(lambda x: nnp.cos(x) * a, a * 0 + 0.5, xtol=1e-14),
        (np.array([0.5, 0.7]),),
    ),
    "optimize.root": (lambda a: optimize.root(lambda x: x**3 + x - a, a * 0 + 0.5, tol=1e-14).x, (X,)),
    "sparse.bicgstab": (lambda a, b: sparse.bicgstab(a, b, tol=1e-14)[0], (SOLID, B)),
    "sparse.cg": (lambda s, b: sparse.cg(symmetric(s), b, tol=1e-14)[0], (POSITIVE, B)),
    "sparse.gmres": (lambda a, b: sparse.gmres(a, b, tol=1e-14)[0], (SOLID, B)),
    "spatial.rotation_of_quaternions": (
        lambda q, v: Rotation.from_quat(q).apply(v),
        (np.array([0.1, 0.2, 0.3, 0.9]), B),
    ),
    "spatial.rotation_of_vectors": (lambda r: Rotation.from_rotvec(r).as_matrix(), (B,)),
    "stats.dirichlet": (lambda a: stats.dirichlet.logpdf(np.array([0.2, 0.3, 0.5]), a), (X,)),
    "stats.gaussian_kde": (lambda data, x: stats.gaussian_kde(data).logpdf(x), (LINE, np.array([0.1, 0.5]))),
    "stats.multinomial": (lambda p: stats.multinomial.logpmf(np.array([1, 2, 3]), 6, p / p.sum()), (X,)),
    "stats.multivariate_normal": (
        lambda x, m, s: stats.multivariate_normal.logpdf(x, m, symmetric(s)),
        (B, B[::-1], POSITIVE),
    ),
    "stats.sem": (stats.sem, (LINE,)),
}


def check(function: Function, operands: tuple[Any, ...]) -> None:
    check_grads(function, operands, order=2, rtol=2e-4, atol=1e-4)


def test_each_special_function_has_a_row() -> None:
    assert set(SPECIAL) == set(sp.__all__) - NO_DERIVATIVE


@pytest.mark.parametrize("name", SPECIAL)
def test_second_derivatives_of_special_functions(name: str) -> None:
    check(*SPECIAL[name])


@pytest.mark.parametrize("name", OTHERS)
def test_second_derivatives_of_other_functions(name: str) -> None:
    check(*OTHERS[name])


@quick_pairs
def test_second_derivatives_of_distributions(name: str, function: str) -> None:
    row = ROWS[name]
    if row.discrete and function not in ("logpmf", "pmf", "cdf", "sf", "logcdf", "logsf"):
        return  # a step function
    x, *parameters = (v[:4] for v in at_smooth_points(name, function))
    f = ours(name, function)
    if row.discrete:
        whole, shapes, loc = parameters[: row.whole], parameters[row.whole : -1], parameters[-1]
        check(lambda *ps: f(x, *whole, *ps, loc), tuple(shapes))
    else:
        check(f, (x, *parameters))
