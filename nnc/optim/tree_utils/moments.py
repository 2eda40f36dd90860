"""Moving averages of whole trees, for transformations of your own, as in optax.tree_utils."""

from __future__ import annotations

from typing import Any

import nnc.numpy as nnp
from nnc import tree
from nnc.array.array import Array, asarray
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.optim.arguments import Scalar
from nnc.optim.moments import Correction, average

__all__ = [
    "tree_bias_correction",
    "tree_update_infinity_moment",
    "tree_update_moment",
    "tree_update_moment_per_elem_norm",
]


def _averages(decay: Scalar, updates: Any, moments: Any, power: Any) -> Any:
    def leaf(g: Any, moment: Any) -> Any:
        return average(decay, power(asarray(g)), asarray(moment)) if tree.is_array(g) else g

    return tree.map(leaf, updates, moments)


@spelled
def tree_update_moment(updates: Any, moments: Any, decay: Scalar, order: int) -> Any:
    """Returns the moving averages of the powers of gradients: decay · moment + (1 − decay) · gᵒʳᵈᵉʳ.

    Args:
        updates: gradients, a pytree.
        moments: the averages so far, a tree of the same structure.
        decay: in [0, 1).
        order: the power: 1 for the mean, 2 for squares.

    Raises:
        TreeError: structures differ.

    Example:
        >>> tree_update_moment({"w": nnp.asarray([2.0])}, {"w": nnp.asarray([1.0])}, 0.75, 2)
        {'w': Array([1.75], dtype=float32)}
    """
    return _averages(decay, updates, moments, lambda g: g**order)


@spelled
def tree_update_moment_per_elem_norm(updates: Any, moments: Any, decay: Scalar, order: int) -> Any:
    """Returns the moving averages of the powers of magnitudes of gradients, which of complex numbers are real.

    Args:
        updates: gradients, a pytree.
        moments: the averages so far, a tree of the same structure.
        decay: in [0, 1).
        order: the power.

    Raises:
        TreeError: structures differ.

    Example:
        >>> tree_update_moment_per_elem_norm([nnp.asarray([3 + 4j])], [nnp.asarray([5.0])], 0.5, 2)
        [Array([15.], dtype=float32)]
    """

    def power(g: Array) -> Array:
        return (g.real**2 + g.imag**2) ** (order / 2) if dtypes.is_complex(g.dtype) else g**order

    return _averages(decay, updates, moments, power)


@spelled
def tree_update_infinity_moment(updates: Any, moments: Any, decay: Scalar, eps: Scalar) -> Any:
    """Returns the larger ones of decay · moment and |g| + eps, as AdaMax keeps them.

    Args:
        updates: gradients, a pytree.
        moments: the ones so far, a tree of the same structure.
        decay: in [0, 1).
        eps: added to magnitudes.

    Raises:
        TreeError: structures differ.

    Example:
        >>> tree_update_infinity_moment([nnp.asarray([-2.0, 0.0])], [nnp.asarray([1.0, 1.0])], 0.5, 0.0)
        [Array([2. , 0.5], dtype=float32)]
    """

    def leaf(g: Any, moment: Any) -> Any:
        return nnp.maximum(abs(asarray(g)) + eps, asarray(moment) * decay) if tree.is_array(g) else g

    return tree.map(leaf, updates, moments)


@spelled
def tree_bias_correction(moment: Any, decay: Scalar, count: Any) -> Any:
    """Divides moving averages that began at 0 by 1 − decayᶜᵒᵘⁿᵗ, by which they are too small after so many updates.

    Args:
        moment: the averages, a pytree.
        decay: the decay with which they were made.
        count: how many updates were made, a 0-d integer of 1 or more.

    Example:
        >>> tree_bias_correction([nnp.asarray([0.5])], 0.75, nnp.asarray(1))
        [Array([2.], dtype=float32)]
    """
    correct = Correction(decay, asarray(count), moment)
    return tree.map(lambda m: astype(correct(asarray(m)), asarray(m).dtype) if tree.is_array(m) else m, moment)
