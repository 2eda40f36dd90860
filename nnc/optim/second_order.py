"""Products with second derivatives, and their diagonals, for losses of parameters, inputs and targets.

The names are those of optax.second_order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.trace.core.differentiate import grad
from nnc.trace.core.differentiate import hvp as product
from nnc.trace.core.vectorize import vmap
from nnc.tree.ravelling import ravel
from nnc.typing import A, ArrayLike

__all__ = ["fisher_diag", "hessian_diag", "hvp"]

Loss = Callable[[Any, Any, Any], Any]


@spelled
def hvp(loss: Loss, v: ArrayLike, params: A, inputs: Any, targets: Any) -> A:
    """Multiplies the Hessian of a loss, with regard to the parameters, by a vector.

    out[i] = sum over j of d² loss / dp[i] dp[j] · v[j]

    `nnc.hvp` does the same for trees of any function.

    Args:
        loss: (params, inputs, targets) -> a 0-d array.
        v: (number of parameters,): the elements of all leaves, in their order.
        params: a pytree of floats.
        inputs: handed to the loss.
        targets: handed to the loss.

    Returns:
        A tree like params.

    Example:
        >>> def loss(p, x, y):
        ...     return 0.5 * nnp.sum((x @ p - y) ** 2)
        >>> x = nnp.asarray([[1.0, 2.0]])
        >>> nnc.optim.second_order.hvp(loss, nnp.asarray([1.0, 0.0]), nnp.zeros(2), x, nnp.zeros(1))
        Array([1., 2.], dtype=float32)
    """
    flat, unravel = ravel(params)
    found: A = product(lambda p: loss(p, inputs, targets), (params,), (unravel(nnp.asarray(v, flat.dtype)),))
    return found


@spelled
def hessian_diag(loss: Loss, params: Any, inputs: Any, targets: Any) -> Array:
    """Returns the diagonal of the Hessian of a loss: exact, by a product for each parameter.

    Args:
        loss: (params, inputs, targets) -> a 0-d array.
        params: a pytree of floats.
        inputs: handed to the loss.
        targets: handed to the loss.

    Returns:
        (number of parameters,).

    Example:
        >>> def loss(p, x, y):
        ...     return 0.5 * nnp.sum((x @ p - y) ** 2)
        >>> nnc.optim.second_order.hessian_diag(loss, nnp.zeros(2), nnp.asarray([[1.0, 2.0]]), nnp.zeros(1))
        Array([1., 4.], dtype=float32)
    """
    flat, _ = ravel(params)
    return vmap(lambda v: nnp.vdot(v, ravel(hvp(loss, v, params, inputs, targets))[0]))(
        nnp.eye(flat.size, dtype=flat.dtype)
    )


@spelled
def fisher_diag(negative_log_likelihood: Loss, params: Any, inputs: Any, targets: Any) -> Array:
    """Returns the diagonal of the observed Fisher information: squares of the gradient.

    Args:
        negative_log_likelihood: (params, inputs, targets) -> a 0-d array.
        params: a pytree of floats.
        inputs: handed to the function.
        targets: handed to the function.

    Returns:
        (number of parameters,).

    Example:
        >>> def nll(p, x, y):
        ...     return 0.5 * nnp.sum((x @ p - y) ** 2)
        >>> nnc.optim.second_order.fisher_diag(nll, nnp.zeros(2), nnp.asarray([[1.0, 2.0]]), nnp.ones(1))
        Array([1., 4.], dtype=float32)
    """
    return ravel(grad(negative_log_likelihood)(params, inputs, targets))[0] ** 2
