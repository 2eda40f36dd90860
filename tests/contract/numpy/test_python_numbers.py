"""Python numbers, and lists of them, that meet float64 arrays keep their 64 bits in every function, since they take its dtype
(docs/arrays.md).

Each row is an expression, evaluated with nnc and with NumPy or SciPy. float32 holds none of its numbers; its arrays are float64.
"""

import inspect
import re

import numpy as np
import pytest
import scipy
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.ndimage
import scipy.optimize
import scipy.signal
import scipy.special
import scipy.stats

import nnc.nn
import nnc.numpy as nnp
import nnc.scipy.fft
import nnc.scipy.integrate
import nnc.scipy.interpolate
import nnc.scipy.linalg
import nnc.scipy.ndimage
import nnc.scipy.signal
import nnc.scipy.special
import nnc.scipy.stats
from tests.contract.nn.test_python_numbers import EXPRESSIONS as OF_NNC

X = np.array([0.15, 0.35, 0.55])
ARRAYS = {
    "x": X,
    "y": np.array([0.7, 0.2, 0.9]),
    "m": np.array([[0.7, 0.2, 0.1], [0.2, 0.9, 0.3], [0.1, 0.3, 1.1]]),
    "o": np.ones(1),
}

BINARY = (
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "power", "float_power", "arctan2", "hypot",
    "copysign", "maximum", "minimum", "fmax", "fmin", "logaddexp", "logaddexp2", "heaviside", "equal", "not_equal", "less",
    "less_equal", "greater", "greater_equal", "atan2", "mod", "pow", "true_divide", "isclose", "allclose", "array_equal",
    "array_equiv",    "logical_and", "logical_or",
    "logical_xor", "nextafter", "divmod", "dot", "inner", "outer", "kron", "vdot", "vecdot", "convolve", "correlate", "union1d",
    "intersect1d", "setdiff1d", "setxor1d", "isin", "append", "polyadd", "polysub", "polymul", "polyval",
)  # fmt: skip
NUMBERLESS = {  # these take no number by itself
    "vecdot", "vdot", "convolve", "correlate", "polyadd", "polysub", "polymul", "polyval", "union1d", "intersect1d", "setdiff1d",
    "setxor1d",
}  # fmt: skip

ROWS = """
np.r_[x, 0.1, [0.3, 0.7]]
np.c_[x, [0.1, 0.3, 0.7]]
np.concatenate([[0.1], [0.3]], dtype="float64")
np.stack([[0.1], [0.3]], dtype="float64")
np.amax(x, initial=0.7)
np.amin(x, initial=0.1)
np.matvec(m, [0.1, 0.2, 0.3])
np.vecmat([0.1, 0.2, 0.3], m)
np.array_equal(o * 0.1, [0.1])
np.array_equal(o * 0.1, 0.1 * o)
np.array_equiv(o * 0.1, [[0.1], [0.1]])
np.average(x, weights=[0.9, 0.1, 0.3])
np.average(x, weights=[0.9, 0.1, 0.3], returned=True)
np.average([0.1, 0.2, 0.7], weights=y)
np.block([o, 0.1])
np.block([[o, o], [0.1, 0.7]])
np.insert(x, 1, [0.1, 0.3])
np.insert(m, 1, [0.1, 0.3, 0.7], axis=0)
np.choose(np.asarray([0, 1, 0]), [x, 0.1])
np.choose(np.asarray([0, 1, 0]), [x, [0.1, 0.3, 0.7]])
np.clip(x, 0.2, 0.3)
np.clip(x, [0.2, 0.3, 0.1], None)
np.column_stack([x, [0.1, 0.2, 0.3]])
np.concatenate([x, [0.1]])
np.compress([True, False, True], x)
np.corrcoef(x, [0.1, 0.7, 0.3])
np.cov(x, [0.1, 0.7, 0.3])
np.cov(x, aweights=[0.1, 0.7, 0.3])
np.cov([0.1, 0.7, 0.3], aweights=x)
np.cross(x, [0.1, 0.7, 0.3])
np.diff(x, prepend=0.1, append=0.7)
np.diff(x, prepend=[0.1], append=[0.3, 0.7])
np.digitize(o * 0.1, [0.1])
np.digitize([0.1], o * 0.1)
np.digitize(0.1, o * 0.1)
np.dstack([x, [0.1, 0.2, 0.3]])
np.ediff1d(x, to_end=0.1, to_begin=0.7)
np.ediff1d(x, to_end=[0.1, 0.3], to_begin=[0.7])
np.einsum("i,i", x, [0.1, 0.2, 0.3])
np.full_like(x, 0.1)
np.full_like(x, [0.1, 0.2, 0.3])
np.geomspace(x, 0.1, 4)
np.geomspace(0.1, x, 4)
np.gradient(x, 0.1)
np.gradient(x, [0.0, 0.1, 0.3])
np.gradient(m, 0.1, [0.0, 0.1, 0.3])
np.gradient([0.1, 0.2, 0.4], x)
np.histogram(o * 0.3, bins=[0, 0.3, 0.6])
np.histogram([0.3], bins=o[0] * np.asarray(ends))
np.histogram(x, bins=3, range=(0.1, 0.7))
np.histogram(x, bins=3, weights=[0.1, 0.2, 0.3])
np.histogram(x, bins=[0.1, 0.35, 0.7], weights=[0.1, 0.2, 0.3], density=True)
np.histogram2d(x, y, bins=[[0.1, 0.35, 0.9], [0.1, 0.7, 0.95]])
np.histogram2d(x, [0.1, 0.2, 0.3], bins=[[0.1, 0.35, 0.9], [0.1, 0.2, 0.3]])
np.histogram2d(x, y, bins=3, range=[[0.1, 0.7], [0.1, 0.9]], weights=[0.1, 0.2, 0.3])
np.histogram_bin_edges(x, bins=[0.1, 0.3])
np.histogram_bin_edges(x, bins=4, range=(0.1, 0.7))
np.histogramdd(m, bins=[[0.1, 0.7, 1.2], [0.2, 0.9, 1.3], [0.1, 0.3, 1.1]])
np.histogramdd(m, bins=2, range=[[0.1, 0.7], [0.2, 0.9], [0.1, 1.1]], weights=[0.1, 0.2, 0.3])
np.hstack([x, [0.1, 0.2]])
np.insert(x, 0, 0.1)
np.interp(x, [0.1, 0.3, 0.7], [0.2, 0.9, 0.6])
np.interp(x, [0.1, 0.3, 0.7], y)
np.interp(x, y[1:], x[:2], left=0.1, right=0.3)
np.interp(x, x, [0.2, 0.9, 0.6])
np.interp([0.1, 0.2], x, y)
np.interp(0.2, x, y)
np.interp(x, x, y, period=0.3)
np.linspace(x, 0.1, 4)
np.linspace(0.1, x, 4)
np.linspace(x, [0.1, 0.2, 0.3], 4, retstep=True)
np.logspace(x, 0.1, 4)
np.logspace(0.1, x, 4)
np.logspace(x, 0.1, 4, base=0.3)
np.matmul(x, [0.1, 0.2, 0.3])
np.matmul(m, [[0.1], [0.2], [0.3]])
np.max(o * 0, initial=0.1)
np.max(x, initial=0.1, where=[False, False, False])
np.max(m, axis=0, initial=0.3)
np.mean(x, where=[True, False, True])
np.min(o, initial=0.1, where=[False])
np.min(x, initial=0.1)
np.sum(x, initial=0.1)
np.prod(x, initial=0.1)
np.nan_to_num(x * np.nan, nan=0.1)
np.nan_to_num(x / 0, posinf=0.1)
np.nan_to_num(-x / 0, neginf=[0.1, 0.2, 0.3])
np.nanpercentile(x, 0.1)
np.nanpercentile(x, [0.1, 33.3])
np.nanquantile(x, 0.1)
np.nanquantile(x, [0.1, 0.7])
np.pad(o, 1, constant_values=0.1)
np.pad(o, 1, constant_values=(0.1, 0.7))
np.pad(m, 1, constant_values=((0.1, 0.7), (0.2, 0.3)))
np.pad(x, 3, mode="linear_ramp", end_values=0.1)
np.pad(x, 3, mode="linear_ramp", end_values=(0.1, 0.7))
np.percentile(x, 0.1)
np.percentile(x, [0.1, 33.3])
np.piecewise(o, [o > 0], [0.1])
np.piecewise(x, [x > 0.3, x > 0.5], [0.1, lambda v: v * 0.3, 0.7])
np.poly(x * 0.1)
np.polyfit(x, [0.1, 0.3, 0.2], 1)
np.polyfit([0.1, 0.3, 0.2], x, 1)
np.polyfit(x, y, 1, w=[0.1, 0.3, 0.2])
np.polyint(x, k=0.1)
np.polyint(x, 2, k=[0.1, 0.7])
np.polydiv(x, [0.1, 0.3])[0]
np.polydiv([0.1, 0.3, 0.7, 0.9], x)[0]
np.polyval([0.1], x)
np.polyval([0.1, 0.7], x)
np.polyval(x, 0.1)
np.polyval(x, [0.1, 0.7])
np.quantile(x, 0.1)
np.quantile(x, [0.1, 0.7])
np.round(x * 1234.567, 2)
np.searchsorted(o * 0.1, 0.1)
np.searchsorted(o * 0.1, [0.1])
np.searchsorted([0.1], o * 0.1)
np.select([x > 0.3], [x], 0.1)
np.select([x > 0.3], [0.1], x)
np.select([x > 0.3, x > 0.2], [[0.1, 0.2, 0.3], x], 0.7)
np.sinc(x)
np.stack([x, [0.1, 0.2, 0.3]])
np.tensordot(m, [[0.1], [0.2], [0.3]], 1)
np.trapezoid([0.1, 0.1, 0.3], x=x)
np.trapezoid(x, x=[0.1, 0.2, 0.7])
np.trapezoid(x, dx=0.1)
np.unwrap(x * 10, discont=0.1)
np.unwrap(x * 10, period=0.3)
np.where([True, False, True], x, 0.1)
np.where([True, False, True], [0.1, 0.2, 0.3], x)
np.vstack([x, [0.1, 0.2, 0.3]])
np.linalg.cond(m, 2)
np.linalg.lstsq(m, [0.1, 0.2, 0.3], 0.1)[0]
np.linalg.lstsq([[0.1, 0.2], [0.3, 0.7], [0.2, 0.1]], x)[0]
np.linalg.matrix_rank(m, 0.1)
np.linalg.matrix_norm(m)
np.linalg.multi_dot([m, [[0.1], [0.2], [0.3]]])
np.linalg.norm(x, 0.1)
np.linalg.norm(x, ord=0.3, axis=0)
np.linalg.outer(x, [0.1, 0.2])
np.linalg.pinv(m, 0.1)
np.linalg.solve(m, [0.1, 0.2, 0.3])
np.linalg.solve([[0.1, 0.2, 0.7], [0.3, 0.7, 0.2], [0.2, 0.1, 0.3]], x)
np.linalg.tensorsolve(m, [0.1, 0.2, 0.3])
np.linalg.vecdot(x, [0.1, 0.2, 0.3])
np.linalg.vector_norm(x, ord=0.3)
np.fft.fftfreq(4, 0.1) * x[0] * 0
scipy.linalg.block_diag(m, [[0.1]])
scipy.linalg.block_diag(m, 0.1)
scipy.linalg.cho_solve((m, False), [0.1, 0.2, 0.3])
scipy.linalg.expm_frechet(m, [[0.1, 0, 0], [0, 0.2, 0], [0, 0, 0.3]])
scipy.linalg.hankel(x, [0.1, 0.2, 0.7])
scipy.linalg.leslie([0.1, 0.2, 0.3, 0.7], x)
scipy.linalg.leslie(x, [0.1, 0.7])
scipy.linalg.lu_solve(scipy.linalg.lu_factor(m), [0.1, 0.2, 0.3])
scipy.linalg.solve(m, [0.1, 0.2, 0.3])
scipy.linalg.solve_sylvester(m, [[0.1]], [[0.1], [0.2], [0.3]])
scipy.linalg.solve_triangular(m, [0.1, 0.2, 0.3])
scipy.linalg.toeplitz(x, [0.1, 0.2, 0.7])
scipy.linalg.eigh(m, [[0.7, 0.1, 0.2], [0.1, 0.9, 0.1], [0.2, 0.1, 0.7]], eigvals_only=True)
scipy.linalg.eigh_tridiagonal(x, [0.1, 0.7], eigvals_only=True)
scipy.linalg.qr_multiply(m, [[0.1, 0.2, 0.3]])[0] ** 2
scipy.ndimage.map_coordinates(m, [[0.1, 1.3], [0.7, 5.3]], order=1, cval=0.1)
scipy.ndimage.map_coordinates([[0.1, 0.2], [0.3, 0.7]], [x, y], order=1)
scipy.interpolate.RegularGridInterpolator(([0.1, 0.3, 0.7],), y)(x[:, None])
scipy.interpolate.RegularGridInterpolator((x,), y)([[0.2], [0.3]])
scipy.interpolate.RegularGridInterpolator((x,), y, bounds_error=False, fill_value=0.1)([[7.2]])
scipy.integrate.cumulative_trapezoid(x, dx=0.1, initial=0)
scipy.integrate.cumulative_trapezoid(x, [0.1, 0.2, 0.7])
scipy.integrate.cumulative_trapezoid([0.1, 0.2, 0.7], x)
scipy.integrate.simpson(x, [0.1, 0.2, 0.7])
scipy.integrate.simpson([0.1, 0.2, 0.7], x)
scipy.integrate.simpson(x, dx=0.1)
scipy.integrate.trapezoid(x, [0.1, 0.2, 0.7])
scipy.integrate.trapezoid([0.1, 0.2, 0.7], x)
scipy.signal.convolve(x, [0.1, 0.7])
scipy.signal.convolve2d(m, [[0.1, 0.7]], boundary="fill", fillvalue=0.1)
scipy.signal.correlate(x, [0.1, 0.7])
scipy.signal.correlate2d(m, [[0.1, 0.7]], fillvalue=0.3)
scipy.signal.csd(x, [0.1, 0.7, 0.3], fs=0.1, nperseg=3)
scipy.signal.csd(x, y, window=[0.1, 0.7, 0.3])
scipy.signal.detrend(x)
scipy.signal.fftconvolve(x, [0.1, 0.7])
scipy.signal.oaconvolve(x, [0.1, 0.7])
scipy.signal.istft(np.fft.rfft(m), fs=0.1, window=[0.1, 0.7, 0.3, 0.2], boundary=False)
scipy.signal.welch(x, fs=0.1, nperseg=3)
scipy.signal.welch(x, window=[0.1, 0.7, 0.3])
scipy.signal.stft(x, fs=0.1, nperseg=3, window=[0.1, 0.7, 0.3])
scipy.special.betainc(x, 0.1, 0.3)
scipy.special.betainc(0.1, [0.3, 0.2, 0.7], x)
scipy.special.betaincc(x, 0.1, 0.3)
scipy.special.boxcox1p(x, 0.1)
scipy.special.boxcox(x, 0.1)
scipy.special.beta(x, 0.1)
scipy.special.betaln(x, 0.1)
scipy.special.gammainc(0.1, x)
scipy.special.gammainc(x, 0.1)
scipy.special.gammaincc([0.1, 0.2, 0.3], x)
scipy.special.hyp1f1(0.1, 0.7, x)
scipy.special.hyp2f1(0.1, 0.7, 0.3, x)
scipy.special.kl_div(x, 0.1)
scipy.special.rel_entr(0.1, x)
scipy.special.rel_entr(x, [0.1, 0.2, 0.3])
scipy.special.logsumexp(x, b=[0.1, 0.2, 0.3])
scipy.special.logsumexp(x, b=0.1)
scipy.special.logsumexp([0.1, 0.2, 0.3], b=x)
scipy.special.owens_t(x, 0.1)
scipy.special.poch(x, 0.1)
scipy.special.xlog1py(x, 0.1)
scipy.special.xlog1py([0.1, 0.2, 0.3], x)
scipy.special.xlogy(0.1, x)
scipy.special.zeta(x + 1, 0.1)
scipy.special.zeta(1.1, x)
scipy.special.sph_harm_y(np.asarray([2]), np.asarray([1]), x[:1], 0.1)
scipy.stats.gaussian_kde(x, weights=[0.1, 0.2, 0.7])(y)
scipy.stats.gaussian_kde(x, bw_method=0.1)(y)
scipy.stats.gaussian_kde(x)([0.1, 0.2])
scipy.stats.gaussian_kde(x)(0.1)
scipy.stats.gaussian_kde(x).integrate_box_1d(0.1, 0.7)
scipy.stats.gaussian_kde(x).integrate_gaussian([0.1], [[0.7]])
scipy.stats.bernoulli.ppf(x, 0.1)
scipy.stats.beta.logpdf(x, 0.1, 0.7, 0.05, 1.3)
scipy.stats.beta.pdf(0.3, x, 0.1)
scipy.stats.beta.cdf(x, [0.1, 0.2, 0.3], 0.7)
scipy.stats.betabinom.logpmf(1, 2, x, 0.1)
scipy.stats.binom.logpmf(1, 2, x)
scipy.stats.binom.cdf(x * 3, 2, 0.1)
scipy.stats.cauchy.logpdf(x, 0.1, 0.7)
scipy.stats.cauchy.ppf(x, 0.1, 0.7)
scipy.stats.chi2.logpdf(x, 0.7, 0.1, 1.3)
scipy.stats.chi2.cdf(x, 0.7)
scipy.stats.dirichlet.logpdf([0.1, 0.2, 0.7], x)
scipy.stats.dirichlet.logpdf(x / x.sum(), [0.1, 0.2, 0.7])
scipy.stats.expon.logpdf(x, 0.1, 0.7)
scipy.stats.expon.ppf(0.3, x)
scipy.stats.gamma.logpdf(x, 0.7, 0.1, 1.3)
scipy.stats.gamma.cdf(0.3, x)
scipy.stats.gennorm.logpdf(x, 0.7)
scipy.stats.geom.logpmf(2, x)
scipy.stats.gumbel_l.logpdf(x, 0.1, 0.7)
scipy.stats.gumbel_r.ppf(x, 0.1, 0.7)
scipy.stats.laplace.logpdf(x, 0.1, 0.7)
scipy.stats.logistic.logpdf(x, 0.1, 0.7)
scipy.stats.logistic.ppf(x, 0.1, 0.7)
scipy.stats.multivariate_normal.logpdf(x, [0.1, 0.2, 0.3], m)
scipy.stats.multivariate_normal.logpdf([0.1, 0.2, 0.3], x, m)
scipy.stats.multivariate_normal.logpdf(x, y, [[0.7, 0.1, 0.2], [0.1, 0.9, 0.1], [0.2, 0.1, 0.7]])
scipy.stats.multivariate_normal.logpdf(x[0], 0.1, 0.7)
scipy.stats.nbinom.logpmf(2, 3.3, x)
scipy.stats.multinomial.pmf(np.asarray([1, 0, 1]), 2, x / x.sum())
scipy.stats.norm.logpdf(x, 0.1, 0.7)
scipy.stats.norm.cdf(0.1, x, 0.7)
scipy.stats.norm.logcdf(x, [0.1, 0.2, 0.3])
scipy.stats.norm.ppf(x, 0.1, 0.7)
scipy.stats.pareto.logpdf(x + 1, 0.7, 0.1)
scipy.stats.poisson.logpmf(2, x)
scipy.stats.poisson.logpmf(x * 0 + 2, 0.1)
scipy.stats.t.logpdf(x, 0.7, 0.1, 1.3)
scipy.stats.t.cdf(0.1, x)
scipy.stats.truncnorm.logpdf(x, 0.1, 0.7)
scipy.stats.truncnorm.cdf(0.3, x - 1, 0.7)
scipy.stats.uniform.logpdf(x, 0.1, 0.7)
scipy.stats.uniform.ppf(x, 0.1, 0.7)
scipy.stats.vonmises.logpdf(x, 0.7, 0.1)
scipy.stats.wrapcauchy.logpdf(x, 0.7)
"""
EXPRESSIONS = [
    *(f"np.{name}(x, [0.1, 0.3, 0.7])" for name in BINARY),
    *(f"np.{name}([0.1, 0.3, 0.7], x)" for name in BINARY),
    *(f"np.{name}(x, 0.3)" for name in BINARY if name not in NUMBERLESS),
    *(f"np.{name}(0.3, x)" for name in BINARY if name not in NUMBERLESS),
    *ROWS.strip().split("\n"),
]


def leaves(result):
    """Yields the arrays of a result."""
    if isinstance(result, (tuple, list)):
        for part in result:
            yield from leaves(part)
    else:
        yield np.asarray(result)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_numbers_that_meet_a_float64_array_keep_its_digits(expression):
    ends = np.array([0, 0.3, 0.6])
    want = eval(expression, {"np": np, "scipy": scipy, "ends": ends, **ARRAYS})
    got = eval(
        expression, {"np": nnp, "scipy": nnc.scipy, "ends": ends, **{n: nnp.asarray(a) for n, a in ARRAYS.items()}}
    )
    for one, other in zip(leaves(got), leaves(want), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)
        assert one.dtype.kind != "f" or one.dtype == np.float64


MODULES = [
    nnp, nnp.linalg, nnp.fft, nnc.nn, nnc.scipy.fft, nnc.scipy.integrate, nnc.scipy.interpolate, nnc.scipy.linalg,
    nnc.scipy.ndimage, nnc.scipy.signal, nnc.scipy.special, nnc.scipy.stats,
]  # fmt: skip
WITHOUT_ROW = {
    # integers, masks or shapes beside the array
    "all", "any", "argpartition", "argwhere", "array_split", "bitwise_and", "bitwise_left_shift", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "comb", "ctc", "delete", "dropout", "dsplit", "embedding", "expn", "extract",
    "flatnonzero", "gcd", "hsplit", "lcm", "ldexp", "left_shift", "log_softmax", "multiclass_hinge_loss",
    "multiclass_perceptron_loss", "multiclass_sparsemax_loss", "nonzero", "partition", "polygamma", "repeat", "resize",
    "right_shift", "softmax", "sparsemax_loss", "split", "std", "take_along_axis", "tile", "var", "vsplit",
    # numbers alone, or a function
    "arange", "bincount", "funm", "rsf2csf",
}  # fmt: skip


def functions_of_several_arrays(module):
    """Yields the names of functions with two parameters or more that arrays may be given for."""
    for name in module.__all__:
        value = getattr(module, name)
        parts = (
            {name: value} if callable(value) else {part: getattr(value, part) for part in getattr(value, "__all__", ())}
        )
        for part, function in parts.items():
            if inspect.isroutine(function):
                annotations = [str(x.annotation) for x in inspect.signature(function).parameters.values()]
                if sum("ArrayLike" in annotation for annotation in annotations) > 1 and not set(parts) & NAMED:
                    yield part


NAMED = set(re.findall(r"\w+", " ".join([*EXPRESSIONS, *OF_NNC])))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_function_of_several_arrays_has_a_row(module):
    assert [name for name in functions_of_several_arrays(module) if name not in WITHOUT_ROW] == []
