"""Helpers of all rows in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.peers.row import Inputs

Function = Callable[..., Any]
Wrap = Callable[[Function], Function]


def make_wrap(framework: str) -> Wrap:
    """`torch.compile`, or the identity."""
    return torch.compile if framework == "torch.compile" else lambda function: function


def tensors(inputs: Inputs, *names: str) -> tuple[torch.Tensor, ...]:
    """Arrays as tensors of their own memory; labels as PyTorch's cross-entropy wants them."""
    return tuple(torch.from_numpy(np.array(inputs[name])) for name in names)
