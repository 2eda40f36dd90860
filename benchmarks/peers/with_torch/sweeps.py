"""Products and convolutions in PyTorch, gradients by the operator that its autograd calls."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from benchmarks.peers.row import Inputs, Step
from benchmarks.peers.with_torch.wrap import Wrap, tensors


def product(inputs: Inputs, wrap: Wrap) -> Step:
    """x · y, over leading batch axes where there are any."""
    (x, y), function = tensors(inputs, "x", "y"), wrap(torch.matmul)
    return lambda: function(x, y)


def convolution(
    inputs: Inputs, wrap: Wrap, *, way: str, stride: int, padding: int, groups: int, transposed: bool
) -> Step:
    """The convolution, or one of its gradients."""
    x, weight, ct = tensors(inputs, "x", "weight", "ct")
    if way == "forward":
        apply = functional.conv_transpose2d if transposed else functional.conv2d
        forward = wrap(lambda x, weight: apply(x, weight, stride=stride, padding=padding, groups=groups))
        return lambda: forward(x, weight)
    wanted = [way == "data", way == "weights", False]

    def backward(x: Any, weight: Any, ct: Any) -> Any:
        sizes = [stride] * 2, [padding] * 2, [1, 1], transposed, [0, 0], groups
        return torch.ops.aten.convolution_backward(ct, x, weight, None, *sizes, wanted)[0 if wanted[0] else 1]

    gradient = wrap(backward)
    return lambda: gradient(x, weight, ct)
