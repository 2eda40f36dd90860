"""Functions that draw: they take a key, and one key gives one result."""

from __future__ import annotations

from collections.abc import Sequence

import nnc.numpy as nnp
from nnc import random, tree
from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.commands.rules import check_axes
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.numpy.operands import to_value
from nnc.typing import ArrayLike

__all__ = ["dropout"]


@spelled
def dropout(
    key: ArrayLike | None,
    x: ArrayLike,
    rate: float,
    *,
    deterministic: bool = False,
    shared_axes: int | Sequence[int] = (),
) -> Array:
    """Returns x with each element set to 0 with probability `rate`, the others divided by 1 - rate (Srivastava et al., 2014).

    Args:
        key: the key for the draw; None will do where `deterministic`.
        x: any shape.
        rate: 0 up to but not including 1.
        deterministic: return x as it is.
        shared_axes: axes along which all elements share one draw; (2, 3) drops whole channels of images (N, C, H, W).

    Raises:
        ArgumentError: rate is no such probability, or the key is missing.

    Example:
        >>> dropout(nnc.random.key(0), np.ones(1000, np.float32), 0.5).max()
        Array(2., dtype=float32)
    """
    if tree.is_array(rate) and spec_of(rate).ndim:
        fix = "write dropout(key, x, 0.5)."
        raise user_error(ShapeError, "dropout", "rate must be one number.", operands={"rate": spec_of(rate)}, fix=fix)
    if not 0 <= rate < 1:
        problem = f"rate={rate} is not in [0, 1)."
        raise user_error(ArgumentError, "dropout", problem, fix="pass the share to drop, such as 0.5.")
    x = to_value(x, "dropout")
    if deterministic or rate == 0:
        return x
    if key is None:
        fix = (
            "pass key=nnc.random.key(0), or switch dropout off with nnc.nn.inference_mode(model) or deterministic=True."
        )
        raise user_error(ArgumentError, "dropout", "there is no key to draw with.", operands={"x": spec_of(x)}, fix=fix)
    shared = check_axes("dropout", (shared_axes,) if isinstance(shared_axes, int) else tuple(shared_axes), x.ndim)
    keep = random.uniform(key, tuple(1 if i in shared else n for i, n in enumerate(x.shape))) >= rate
    return nnp.where(keep, x / (1 - rate), 0)
