"""Factorisations in PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.peers.row import Case, Inputs, without_signs
from benchmarks.peers.with_torch.wrap import Wrap, tensors


def factorise(inputs: Inputs, wrap: Wrap, *, function: str) -> Case:
    """A function of torch.linalg."""
    (x,), wrapped = tensors(inputs, "x"), wrap(getattr(torch.linalg, function))

    def step() -> Any:
        with torch.inference_mode():
            return wrapped(x)

    return Case(step, without_signs)
