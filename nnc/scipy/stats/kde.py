"""Kernel density estimation, which nnc.scipy.stats shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nnc.array.array import Array
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.numpy import elementwise as el
from nnc.numpy import linalg as la
from nnc.numpy import reductions as red
from nnc.numpy.creation import full, zeros
from nnc.numpy.manipulation import atleast_1d, atleast_2d, diagonal, moveaxis, squeeze
from nnc.numpy.operands import to_value
from nnc.numpy.special import logsumexp
from nnc.numpy.statistics import cov as covariance_of
from nnc.random import choice, multivariate_normal, split
from nnc.scipy.special import ndtr
from nnc.scipy.stats.evaluate import read
from nnc.typing import ArrayLike, ShapeLike

__all__ = ["gaussian_kde"]

Bandwidth = str | float | Array | Callable[[Any], Any] | None


@dataclass(frozen=True, init=False)
class gaussian_kde:  # noqa: N801  (SciPy's name)
    """An estimate of the density that samples come from: the mean of normal densities around them.

    It is a pytree of arrays, so that compiled functions take it as an argument. SciPy's `set_bandwidth` does not exist: make
    another estimate. 16-bit floats are computed in float32.

    Args:
        dataset: (d, n), samples in columns, or (n,).
        bw_method: the factor of the standard deviation of samples that gives the one of each normal density: "scott" (by default),
            n^(−1 / (d + 4)); "silverman", (n (d + 2) / 4)^(−1 / (d + 4)); a number; or a function of this object.
        weights: (n,), by default equal.

    Raises:
        ArgumentError: there are fewer than two samples, or no such method.
        ShapeError: dataset and weights do not fit.

    Example:
        >>> kde = gaussian_kde(np.asarray([1.0, 2.0, 2.5, 4.0]))
        >>> kde(np.asarray([2.0, 9.0]))
        Array([2.68519768e-01, 9.40106246e-08], dtype=float64)
    """

    neff: Array
    dataset: Array
    weights: Array
    covariance: Array
    inv_cov: Array

    @spelled
    def __init__(self, dataset: ArrayLike, bw_method: Bandwidth = None, weights: ArrayLike | None = None) -> None:
        where = "gaussian_kde"
        operands = (dataset,) if weights is None else (dataset, weights)
        (x, *given), _ = read(where, operands, elementwise=False)
        x = atleast_2d(x)
        n = x.spec.shape[1]
        if x.spec.ndim > 2 or (given and atleast_1d(given[0]).spec.shape != (n,)):
            problem = "dataset and weights do not fit."
            fix = "give a dataset (d, n) or (n,), and weights (n,)."
            raise user_error(ShapeError, where, problem, operands={"dataset": x.spec, "weights": weights}, fix=fix)
        if n < 2:
            problem = "a density has no estimate from fewer than two samples."
            fix = "pass samples in columns, (d, n) or (n,)."
            raise user_error(ArgumentError, where, problem, operands={"dataset": x.spec}, fix=fix)
        w = atleast_1d(given[0]) / red.sum(given[0]) if given else full((n,), 1 / n, x.spec.dtype)
        self._set(dataset=x, weights=w, neff=1 / red.sum(el.square(w)))
        factor = self._factor(bw_method)
        covariance = atleast_2d(covariance_of(x, aweights=w))
        self._set(covariance=covariance * factor**2, inv_cov=la.inv(covariance) / factor**2)

    def _set(self, **values: Array) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _factor(self, method: Bandwidth) -> Any:
        if method is None or isinstance(method, str):
            if method in (None, "scott"):
                return el.power(self.neff, -1 / (self.d + 4))
            if method == "silverman":
                return el.power(self.neff * (self.d + 2) / 4, -1 / (self.d + 4))
        elif dtypes.is_scalar(method):
            return method
        elif callable(method):
            return method(self)
        elif not (value := to_value(method, "gaussian_kde", "bw_method")).spec.ndim:
            return value.astype(self.dataset.spec.dtype)
        fix = 'use "scott", "silverman", a number, or a function of the estimate.'
        raise user_error(ArgumentError, "gaussian_kde", f"bw_method is {method!r}.", fix=fix)

    @property
    def d(self) -> int:
        """Number of variables."""
        return self.dataset.spec.shape[0]

    @property
    def n(self) -> int:
        """Number of samples."""
        return self.dataset.spec.shape[1]

    @spelled
    def evaluate(self, points: ArrayLike) -> Array:
        """Returns the density at points.

        Args:
            points: (d, m), points in columns; (m,) where d is 1; or (d,), one point.

        Returns:
            (m,).

        Raises:
            ShapeError: the points have another number of variables.
        """
        energy, log_norm = self._energies("evaluate", points)
        return red.sum(self.weights * el.exp(log_norm - energy), axis=-1)

    @spelled
    def __call__(self, points: ArrayLike) -> Array:
        """Returns the density at points; see `evaluate`.

        Args:
            points: (d, m), (m,) where d is 1, or (d,).
        """
        return self.evaluate(points)

    @spelled
    def pdf(self, x: ArrayLike) -> Array:
        """Returns the density at points; see `evaluate`.

        Args:
            x: (d, m), (m,) where d is 1, or (d,).
        """
        return self.evaluate(x)

    @spelled
    def logpdf(self, x: ArrayLike) -> Array:
        """Returns the logarithm of the density, also where the density is below the smallest number.

        Args:
            x: (d, m), (m,) where d is 1, or (d,).

        Returns:
            (m,).

        Raises:
            ShapeError: the points have another number of variables.
        """
        energy, log_norm = self._energies("logpdf", x)
        return log_norm + logsumexp(-energy, axis=-1, b=self.weights)

    def _energies(self, where: str, points: ArrayLike) -> tuple[Array, Array]:
        """(m, n) halves of squared distances, in units of the kernels, and the logarithm of their factor."""
        (x, data), _ = read(f"gaussian_kde.{where}", (points, self.dataset), elementwise=False)
        x = atleast_2d(x)
        if x.spec.shape == (1, self.d):
            x = x.T
        if x.spec.ndim > 2 or x.spec.shape[0] != self.d:
            problem = f"points of shape {x.spec.shape} have other variables than the dataset."
            operands = {"points": x.spec, "dataset": self.dataset.spec}
            fix = "pass points in columns: (d, m)."
            raise user_error(ShapeError, f"gaussian_kde.{where}", problem, operands=operands, fix=fix)
        root = la.cholesky(self.inv_cov)
        x, data = la.matmul(root.T, x), la.matmul(root.T, data)
        energy = red.sum(el.square(x[:, :, None] - data[:, None, :]), axis=0) / 2
        return energy, red.sum(el.log(diagonal(root))) - self.d * math.log(2 * math.pi) / 2

    @spelled
    def integrate_gaussian(self, mean: ArrayLike, cov: ArrayLike) -> Array:
        """Returns the integral of the density, multiplied by a normal one.

        Args:
            mean: (d,), of the normal density.
            cov: (d, d), its covariance; a number where d is 1.

        Raises:
            ShapeError: the shapes are others.
        """
        where = "gaussian_kde.integrate_gaussian"
        (m, c, _), _ = read(where, (mean, cov, self.dataset), elementwise=False)
        m, c = atleast_1d(squeeze(m)), atleast_2d(c)
        if m.spec.shape != (self.d,) or c.spec.shape != (self.d, self.d):
            problem = f"mean and cov have not the {self.d} variables of the dataset."
            fix = "give mean (d,) and cov (d, d)."
            raise user_error(ShapeError, where, problem, operands={"mean": m.spec, "cov": c.spec}, fix=fix)
        return self._convolved(c, m[:, None])[0]

    @spelled
    def integrate_box_1d(self, low: ArrayLike, high: ArrayLike) -> Array:
        """Returns the integral of the density between two numbers.

        Args:
            low: a number.
            high: a number.

        Raises:
            ShapeError: the dataset has several variables, or a limit is no number.
        """
        where = "gaussian_kde.integrate_box_1d"
        (a, b, data), _ = read(where, (low, high, self.dataset), elementwise=False)
        if self.d != 1 or a.spec.ndim or b.spec.ndim:
            problem = "it takes two numbers, of an estimate of one variable."
            operands = {"low": a.spec, "high": b.spec, "dataset": self.dataset.spec}
            fix = "map the function over limits with nnc.vmap."
            raise user_error(ShapeError, where, problem, operands=operands, fix=fix)
        deviation = el.sqrt(self.covariance[0, 0])
        return red.sum(self.weights * (ndtr((b - data[0]) / deviation) - ndtr((a - data[0]) / deviation)))

    @spelled
    def integrate_kde(self, other: gaussian_kde) -> Array:
        """Returns the integral of the product of two estimates.

        Args:
            other: an estimate of as many variables.

        Raises:
            ShapeError: it has another number of variables.
        """
        if other.d != self.d:
            problem = f"there are {self.d} and {other.d} variables."
            operands = {"self": self.dataset.spec, "other": other.dataset.spec}
            fix = "pass an estimate of as many."
            raise user_error(ShapeError, "gaussian_kde.integrate_kde", problem, operands=operands, fix=fix)
        return red.sum(other.weights * self._convolved(other.covariance, other.dataset))

    def _convolved(self, cov: Array, means: Array) -> Array:
        """(m,) integrals of the estimate, multiplied by normal densities around the columns of `means`."""
        root = la.cholesky(self.covariance + cov)
        data, means = (la.solve_triangular(root, x, lower=True) for x in (self.dataset, means))
        energy = red.sum(el.square(means[:, :, None] - data[:, None, :]), axis=0) / 2
        factor = math.sqrt(2 * math.pi) ** self.d * red.prod(diagonal(root))
        return red.sum(self.weights * el.exp(-energy), axis=-1) / factor

    @spelled
    def resample(self, key: ArrayLike, shape: ShapeLike = ()) -> Array:
        """Returns samples of the density.

        Args:
            key: a key that is used for nothing else.
            shape: the shape of the samples.

        Returns:
            (d, *shape).
        """
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        first, second = split(key)
        centres = self.dataset[:, choice(first, self.n, sizes, p=self.weights)]
        mean = zeros((self.d,), self.covariance.spec.dtype)
        return centres + moveaxis(multivariate_normal(second, mean, self.covariance, sizes), -1, 0)
