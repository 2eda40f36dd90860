"""Derivatives of functions that have none, from their values at random points nearby; names of optax.perturbations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import nnc.numpy as nnp
from nnc import random, tree
from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.errors.errors import check_count
from nnc.optim.arguments import Scalar, check_scalar
from nnc.optim.base import number
from nnc.optim.tree_utils import tree_random_like
from nnc.trace.core.differentiate import stop_gradient
from nnc.trace.core.vectorize import vmap
from nnc.typing import ArrayLike, DTypeLike

__all__ = ["Gumbel", "Normal", "make_perturbed_fun"]


class Noise(Protocol):
    """A distribution with a density."""

    def sample(self, key: Any, sample_shape: Sequence[int] = (), dtype: Any = "float32") -> Array:
        """Draws."""
        ...

    def log_prob(self, inputs: Any) -> Array:
        """Returns the logarithm of the density, up to a constant."""
        ...


@dataclass(frozen=True, slots=True)
class Normal:
    """The normal distribution of mean 0 and variance 1.

    Example:
        >>> Normal().log_prob(nnp.asarray(2.0))
        Array(-2., dtype=float32)
    """

    def sample(self, key: ArrayLike, sample_shape: Sequence[int] = (), dtype: DTypeLike = "float32") -> Array:
        """Draws.

        Args:
            key: a key of `nnc.random`.
            sample_shape: the shape of the result.
            dtype: the dtype of the result.
        """
        return random.normal(key, tuple(sample_shape), dtype)

    def log_prob(self, inputs: ArrayLike) -> Array:
        """Returns the logarithm of the density, up to a constant.

        Args:
            inputs: an array of floats.
        """
        return -0.5 * nnp.square(inputs)


@dataclass(frozen=True, slots=True)
class Gumbel:
    """The standard Gumbel distribution.

    Example:
        >>> Gumbel().log_prob(nnp.asarray(0.0))
        Array(-1., dtype=float32)
    """

    def sample(self, key: ArrayLike, sample_shape: Sequence[int] = (), dtype: DTypeLike = "float32") -> Array:
        """Draws.

        Args:
            key: a key of `nnc.random`.
            sample_shape: the shape of the result.
            dtype: the dtype of the result.
        """
        return random.gumbel(key, tuple(sample_shape), dtype)

    def log_prob(self, inputs: ArrayLike) -> Array:
        """Returns the logarithm of the density.

        Args:
            inputs: an array of floats.
        """
        x = nnp.asarray(inputs)
        return -x - nnp.exp(-x)


@spelled
def make_perturbed_fun(
    fun: Callable[[Any], Any],
    num_samples: int = 1000,
    sigma: Scalar = 0.1,
    noise: Noise = Gumbel(),
    use_baseline: bool = True,
) -> Callable[[ArrayLike, Any], Any]:
    """Smooths a function by noise, so that it has derivatives of any order (Berthet et al., "Learning with differentiable perturbed
    optimizers", 2020).

    f_σ(x) = mean of f(x + σ z) over draws z

    Values and derivatives are estimates without bias, from values of f alone: f may be a ranking, a shortest path or an argmax.
    Derivatives are taken of the density of the draws (Foerster et al., "DiCE", 2018).

    Args:
        fun: from a pytree of floats to a pytree of floats.
        num_samples: draws for each call.
        sigma: scale of the noise.
        noise: a distribution with `sample(key, shape, dtype)` and `log_prob(x)`.
        use_baseline: subtract the value without noise in derivatives, which lowers their variance.

    Returns:
        (key, x) -> the smoothed value.

    Raises:
        ArgumentError: num_samples is no positive int, or sigma not positive.

    Example:
        >>> def f(x):
        ...     return nnp.sum(nnp.maximum(x, 0))
        >>> smooth = nnc.optim.perturbations.make_perturbed_fun(f, 2000, 0.1)
        >>> gradient = nnc.grad(smooth, argnums=1)(nnc.random.key(0), nnp.asarray([-1.0, 1.0]))
        >>> bool(nnp.all(nnp.abs(gradient - nnp.asarray([0, 1])) < 0.2))
        True
    """
    where = "make_perturbed_fun"
    check_scalar(where, "sigma", sigma, positive=True)
    check_count(where, "num_samples", num_samples, "write num_samples=1000.")

    def smoothed(key: ArrayLike, x: Any) -> Any:
        baseline = fun(tree.map(stop_gradient, x)) if use_baseline else None

        def at_draw(key: Any) -> Any:
            draw = tree_random_like(key, x, noise.sample)
            moved = tree.map(lambda p, z: stop_gradient(p + number(sigma, z.dtype) * z), x, draw)
            again = tree.map(lambda p, q: (q - p) / number(sigma, q.dtype), x, moved)  # the draw, as a function of x
            total: Any = sum(nnp.sum(noise.log_prob(z)) for z in tree.leaves(again))
            box = nnp.exp(total - stop_gradient(total))  # 1, with the derivative of the density
            out = tree.map(lambda y: box * y, fun(moved))
            return out if baseline is None else tree.map(lambda y, b: y + (1 - box) * b, out, baseline)

        return tree.map(lambda y: nnp.mean(y, axis=0), vmap(at_draw)(random.split(key, num_samples)))

    return smoothed
