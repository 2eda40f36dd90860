"""Products and convolutions in JAX, images in NHWC; arrays are turned before and after the measurement."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers.row import Case, Inputs, NDArray, Step


def product(inputs: Inputs) -> Step:
    """x · y, over leading batch axes where there are any."""
    jax.config.update("jax_enable_x64", inputs["x"].dtype == np.float64)
    compiled = jax.jit(jnp.matmul)
    x, y = jnp.asarray(inputs["x"]), jnp.asarray(inputs["y"])
    return lambda: jax.block_until_ready(compiled(x, y))


def convolution(inputs: Inputs, *, way: str, stride: int, padding: int, groups: int, transposed: bool) -> Case:
    """The convolution, or one of its gradients."""
    x, ct = (jnp.asarray(np.transpose(inputs[name], (0, 2, 3, 1))) for name in ("x", "ct"))
    weight = jnp.asarray(np.transpose(inputs["weight"], (2, 3, 1, 0)))  # of a transposed one: (H, W, out, in)

    def forward(x: Any, weight: Any) -> Any:
        names = ("NHWC", "HWIO", "NHWC")
        if not transposed:
            pads = ((padding, padding),) * 2
            return jax.lax.conv_general_dilated(
                x, weight, (stride, stride), pads, dimension_numbers=names, feature_group_count=groups
            )
        edge = weight.shape[0] - 1 - padding
        return jax.lax.conv_general_dilated(
            x, weight[::-1, ::-1].swapaxes(2, 3), (1, 1), ((edge, edge),) * 2, lhs_dilation=(stride, stride),
            dimension_numbers=names,
        )  # fmt: skip

    if way == "forward":
        compiled = jax.jit(forward)
        return Case(lambda: jax.block_until_ready(compiled(x, weight)), _turned_images)
    place = ("data", "weights").index(way)
    gradient = jax.jit(lambda x, weight, ct: jax.vjp(forward, x, weight)[1](ct)[place])
    return Case(lambda: jax.block_until_ready(gradient(x, weight, ct)), (_turned_images, _turned_weights)[place])


def _turned_images(out: Any) -> NDArray:
    return np.transpose(np.asarray(out), (0, 3, 1, 2))


def _turned_weights(out: Any) -> NDArray:
    return np.transpose(np.asarray(out), (3, 2, 0, 1))
