"""Products and convolutions in nnc."""

from __future__ import annotations

from typing import Any

import nnc
import nnc.numpy as nnp
from benchmarks.peers.row import Inputs, Step
from nnc import nn


def product(inputs: Inputs) -> Step:
    """x · y, over leading batch axes where there are any."""
    compiled = nnc.compile(nnp.matmul)
    x, y = nnc.asarray(inputs["x"]), nnc.asarray(inputs["y"])
    return lambda: compiled(x, y)


def convolution(inputs: Inputs, *, way: str, stride: int, padding: int, groups: int, transposed: bool) -> Step:
    """The convolution, or one of its gradients."""
    x, weight, ct = (nnc.asarray(inputs[name]) for name in ("x", "weight", "ct"))

    def forward(x: Any, weight: Any) -> Any:
        apply = nn.conv_transpose if transposed else nn.conv
        return apply(x, weight, stride=stride, padding=padding, groups=groups)

    if way == "forward":
        compiled = nnc.compile(forward)
        return lambda: compiled(x, weight)
    place = ("data", "weights").index(way)
    gradient = nnc.compile(lambda x, weight, ct: nnc.vjp(forward, x, weight)[1](ct)[place])
    return lambda: gradient(x, weight, ct)
