"""Functions of (w, x) with collectives over the axis "i", for nnc and for any library with functions of the same names.

`w` is the same at all places, each place has its own `x`. `jax_shard_map.json` holds the results of JAX 0.10.2 under
`jax.shard_map(..., check_vma=True)` on 2 places, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

PLACES = 2
W = np.array([0.5, -1.25, 2.0, 0.75])
X = np.array([[1.0, 2.0, -0.5, 0.25], [-1.5, 0.75, 3.0, 1.25]])
T = np.array([0.3, -0.2, 1.0, 0.6])  # a direction of w
SCALE = np.array([[1.0], [2.5]])

Case = Callable[[Any, Any, Any], Any]


def summed(ops: Any, w: Any, x: Any) -> Any:
    return ops.psum(((w * x) ** 2).sum(), "i")


def local(ops: Any, w: Any, x: Any) -> Any:
    return ((w * x) ** 3).sum()


def of_same(ops: Any, w: Any, x: Any) -> Any:
    return ops.psum((w**3).sum(), "i") * ops.pmean((w * x).sum(), "i")


def mixed(ops: Any, w: Any, x: Any) -> Any:
    return ops.psum((w * w * x).sum(), "i") * (w * x).sum() + (w**3).sum()


def normalised(ops: Any, w: Any, x: Any) -> Any:
    y = w * x
    mean = ops.pmean(y.mean(), "i")
    variance = ops.pmean(((y - mean) ** 2).mean(), "i")
    return (((y - mean) / (variance + 0.1) ** 0.5) ** 3 * x).sum()


def gathered(ops: Any, w: Any, x: Any) -> Any:
    return (ops.all_gather(w * x, "i") ** 3 * SCALE).sum() * x.sum()


def gathered_tiled(ops: Any, w: Any, x: Any) -> Any:
    y = ops.all_gather((w * x).reshape(2, 2), "i", axis=1, tiled=True)
    return (y**2 * np.arange(8.0).reshape(2, 4)).sum()


def scattered(ops: Any, w: Any, x: Any) -> Any:
    return (ops.psum_scatter((w * x).reshape(2, 2), "i") ** 3).sum()


def scattered_tiled(ops: Any, w: Any, x: Any) -> Any:
    y = (w * x).reshape(2, 2) ** 2
    return (ops.psum_scatter(y, "i", scatter_dimension=1, tiled=True)[:, 0] ** 2 * x[:2]).sum()


def permuted(ops: Any, w: Any, x: Any) -> Any:
    return (ops.ppermute((w * x) ** 2, "i", [(0, 1)]) * w * x).sum() + ops.ppermute(x * w, "i", [(0, 1), (1, 0)])[
        0
    ] ** 2


def exchanged(ops: Any, w: Any, x: Any) -> Any:
    y = ops.all_to_all((w * x).reshape(2, 2), "i", 0, 0)
    z = ops.all_to_all((w * x).reshape(2, 2), "i", 0, 1, tiled=True)
    return (y**3 * np.array([[1.0, 2.0], [3.0, 4.0]])).sum() + (z**2 * np.arange(4.0)).sum()


def indexed(ops: Any, w: Any, x: Any) -> Any:
    return ((w * x) ** 2).sum() * (ops.axis_index("i") + ops.axis_size("i"))


def scanned(ops: Any, w: Any, x: Any) -> Any:
    def step(total: Any, element: Any) -> Any:
        total = total + ops.psum(element * w[0] * total, "i") * 0.1
        return total, total * element * w[1]

    total, rows = ops.scan(step, w[2], x)
    return total * (rows**2).sum()


def branched(ops: Any, w: Any, x: Any) -> Any:
    return ops.cond(
        ops.psum(x.sum(), "i") > 0,
        lambda: ops.psum((w * x).sum(), "i") ** 2 * w[0],
        lambda: w[1],
    )


CASES: tuple[Case, ...] = (
    summed, local, of_same, mixed, normalised, gathered, gathered_tiled, scattered, scattered_tiled, permuted, exchanged,
    indexed, scanned, branched,
)  # fmt: skip


def results(ops: Any, case: Case, w: Any, x: Any) -> tuple[Any, ...]:
    """The value, gradients with regard to w and x, derivative in a direction, second derivative, and gradient where w varies."""

    def loss(w: Any, x: Any) -> Any:
        return case(ops, w, x)

    def gradient(w: Any) -> Any:
        return ops.grad(loss)(w, x)

    return (
        loss(w, x),
        gradient(w),
        ops.grad(loss, 1)(w, x),
        ops.jvp(lambda w: loss(w, x), (w,), (ops.asarray(T),))[1],
        ops.jvp(gradient, (w,), (ops.asarray(T),))[1],
        ops.grad(lambda w: (gradient(w) ** 2).sum())(w),
        ops.grad(loss)(ops.pvary(w, "i"), x),
    )
