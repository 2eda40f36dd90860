"""L-BFGS: steps along an approximate inverse Hessian, made of the last few steps and changes of the gradient."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc.array.array import Array, asarray
from nnc.array.promote import astype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors.errors import check_count
from nnc.optim.arguments import Scalar, check_params, check_rate
from nnc.optim.base import GradientTransformation, chain, check_transformation, map_trainable, stateful
from nnc.optim.linesearch import inner, ravel, scale_by_zoom_linesearch, unravel
from nnc.optim.schedules import Schedule
from nnc.optim.transforms import scale, scale_by_learning_rate, zero_count

__all__ = ["ScaleByLBFGSState", "lbfgs", "scale_by_lbfgs"]


class ScaleByLBFGSState(NamedTuple):
    """Count of updates; the last parameters and gradient; their changes, oldest first, as rows; 1 / ⟨change, change⟩ of each.

    All trainable leaves lie in one vector. Rows that are not yet filled are 0.

    Attributes:
        count: how many updates were made, a 0-d integer.
        params: the last parameters.
        updates: the last gradient.
        diff_params_memory: changes of the parameters, oldest first, as rows.
        diff_updates_memory: changes of the gradient, oldest first, as rows.
        weights_memory: 1 / ⟨change, change⟩ of each.

    Example:
        >>> state = nnc.optim.scale_by_lbfgs().init(nnp.ones(2))
        >>> state.count
        Array(0, dtype=int64)
    """

    count: Any
    params: Any
    updates: Any
    diff_params_memory: Any
    diff_updates_memory: Any
    weights_memory: Any


@spelled
def scale_by_lbfgs(memory_size: int = 10, scale_init_precond: bool = True) -> GradientTransformation:
    """Multiplies gradients by an approximate inverse Hessian (Nocedal and Wright, "Numerical optimization", 2006, algorithm 7.4).

    Cost: 2 · memory_size vectors of state; 4 · memory_size products of vectors.

    Args:
        memory_size: how many changes are kept.
        scale_init_precond: begin from the identity times ⟨s, y⟩ / ⟨y, y⟩, the size of the last change; in the first
            update times min(1, 1 / ‖g‖).

    Raises:
        ArgumentError: memory_size is no positive int.
        ArgumentTypeError (from update): params were not given.

    Example:
        >>> transformation = nnc.optim.scale_by_lbfgs()
        >>> params = nnp.asarray([3.0, 4.0])
        >>> updates, state = transformation.update(2 * params, transformation.init(params), params)
        >>> int(state.count)
        1
    """
    where = "scale_by_lbfgs"
    check_count(where, "memory_size", memory_size, "choose 10.")

    def init_fn(params: Any) -> ScaleByLBFGSState:
        check_params(where, params)
        flat = ravel(params)
        rows = asarray(np.zeros((memory_size, flat.size), flat.dtype))
        weights = asarray(np.zeros(memory_size, dtypes.real_dtype(flat.dtype)))
        return ScaleByLBFGSState(zero_count(), nnp.zeros_like(flat), nnp.zeros_like(flat), rows, rows, weights)

    def update_fn(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        map_trainable(where, lambda u, p: u, "updates", updates, params=params)  # checks structure and shapes
        at, g = ravel(params), astype(ravel(updates), state.updates.dtype)
        seen = state.count > 0
        s, y = (nnp.where(seen, new - old, 0) for new, old in ((at, state.params), (g, state.updates)))
        product = inner(y, s)
        weight = reciprocal(product)
        steps, changes = push_row(state.diff_params_memory, s), push_row(state.diff_updates_memory, y)
        weights = push_row(state.weights_memory, weight)
        size: Any = 1.0
        if scale_init_precond:
            squares = inner(y, y)
            first = nnp.minimum(1.0, reciprocal(nnp.sqrt(inner(g, g))))
            size = nnp.where(seen, nnp.where(squares > 0, product * reciprocal(squares), 1.0), first)
        u = times_inverse_hessian(g, steps, changes, weights, size)
        new_state = ScaleByLBFGSState(state.count + 1, at, g, steps, changes, weights)
        return unravel(updates, u), new_state

    return stateful(where, ScaleByLBFGSState, init_fn, update_fn, reads_params=True)


def reciprocal(x: Array) -> Array:
    """1 / x, and 0 for numbers so small that 1 / x may overflow."""
    none = nnp.abs(x) < float(np.finfo(x.dtype).tiny)
    return nnp.where(none, 0.0, 1.0 / nnp.where(none, 1.0, x))


def push_row(rows: Array, row: Array) -> Array:
    """Returns the rows without the oldest, and a new one at the end."""
    return nnp.concatenate([rows[1:], astype(nnp.expand_dims(row, 0), rows.dtype)])


def times_inverse_hessian(g: Array, steps: Array, changes: Array, weights: Array, size: Any) -> Array:
    """Returns the two loops: from the newest change to the oldest, and back."""
    alphas = []
    for i in reversed(range(weights.shape[0])):
        alpha = weights[i] * inner(steps[i], g)
        g = g - alpha * changes[i]
        alphas.append(alpha)
    u = size * g
    for i, alpha in enumerate(reversed(alphas)):
        u = u + (alpha - weights[i] * inner(changes[i], u)) * steps[i]
    return u


DEFAULT_LINESEARCH = scale_by_zoom_linesearch(20, initial_guess_strategy="one")


@spelled
def lbfgs(
    learning_rate: Scalar | Schedule | None = None, memory_size: int = 10, scale_init_precond: bool = True,
    linesearch: GradientTransformation | None = DEFAULT_LINESEARCH,
) -> GradientTransformation:  # fmt: skip
    """L-BFGS with a line search for the strong Wolfe conditions (Liu and Nocedal, "On the limited memory BFGS method", 1989), as
    in Optax. Each update makes one step and costs a few evaluations of the function.

    Its `update` takes the function: `update(grads, state, params, value=value, grad=grads, value_fn=loss)`, and
    `value_and_grad_from_state` saves the evaluation that the line search has made already.

    Args:
        learning_rate: multiplies the step before the line search; None is 1.
        memory_size: how many changes are kept, history_size in torch.optim.LBFGS.
        scale_init_precond: begin from the identity times the size of the last change, as for `scale_by_lbfgs`.
        linesearch: None makes steps of the learning rate, and `update` then needs params alone.

    Raises:
        ArgumentTypeError (from update): params, or arguments that the line search needs, were not given.

    Example:
        >>> rosenbrock = lambda p: 100 * (p[1] - p[0] ** 2) ** 2 + (1 - p[0]) ** 2
        >>> optimizer = nnc.optim.lbfgs()
        >>> @nnc.compile
        ... def step(params, state):
        ...     value, grad = nnc.value_and_grad(rosenbrock)(params)
        ...     updates, state = optimizer.update(grad, state, params, value=value, grad=grad, value_fn=rosenbrock)
        ...     return nnc.optim.apply_updates(params, updates), state
        >>> params = nnp.asarray([-1.2, 1.0])
        >>> state = optimizer.init(params)
        >>> for _ in range(40):
        ...     params, state = step(params, state)
        >>> nnp.round(params, 3)
        Array([1., 1.], dtype=float32)
    """
    links = [scale_by_lbfgs(memory_size, scale_init_precond)]
    if learning_rate is None:
        links.append(scale(-1.0))
    else:
        check_rate("lbfgs", learning_rate)
        links.append(scale_by_learning_rate(learning_rate))
    if linesearch is not None:
        check_transformation("lbfgs", "linesearch", linesearch)
        links.append(linesearch)
    return chain(*links)
