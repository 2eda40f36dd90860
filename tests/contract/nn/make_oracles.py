"""Stores PyTorch's results for the rows of `oracle_cases.py` and `layer_oracle_cases.py`.

`python -m tests.contract.nn.make_oracles`, where torch is installed, renews both; names of files after it, these alone.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  (PyTorch's own name for it)
from torch.nn.utils import parametrizations

from tests.contract.nn import layer_oracle_cases, oracle_cases
from tests.contract.nn.oracle_cases import Row, cotangent, joined


class Holder(torch.nn.Module):
    """A module that returns its weight, as parametrizations make it."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight.detach().clone())

    def forward(self) -> torch.Tensor:
        return self.weight


def spectral(weight: torch.Tensor, left: torch.Tensor, right: torch.Tensor, steps: int, dim: int) -> torch.Tensor:
    """PyTorch's spectral norm in training; in evaluation where there are 0 steps."""
    module = parametrizations.spectral_norm(Holder(weight), n_power_iterations=max(1, steps), dim=dim).train(steps > 0)
    names = ("parametrizations.weight.original", "parametrizations.weight.0._u", "parametrizations.weight.0._v")
    values = (weight, left.clone(), right.clone())
    return torch.func.functional_call(module, dict(zip(names, values, strict=True)), ())


def weighted(scale: torch.Tensor, direction: torch.Tensor, dim: int | None) -> torch.Tensor:
    """PyTorch's weight norm."""
    module = parametrizations.weight_norm(Holder(direction), dim=dim)
    names = ("parametrizations.weight.original0", "parametrizations.weight.original1")
    return torch.func.functional_call(module, dict(zip(names, (scale, direction), strict=True)), ())


def _angles(x: torch.Tensor, places: torch.Tensor, features: int, base: float) -> torch.Tensor:
    rates = base ** (-torch.arange(0, features, 2, dtype=x.dtype) / features)
    return (places[..., None] * rates)[..., None, :]  # (..., T, 1, features / 2)


def halves(x: torch.Tensor, places: torch.Tensor, features: int, base: float = 10000.0) -> torch.Tensor:
    """The rotary embedding of Hugging Face's Llama: x · cos + rotate_half(x) · sin."""
    angles = _angles(x, places, features, base)
    angles = torch.cat([angles, angles], -1)
    a, b = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-b, a], -1) * angles.sin()


def interleaved(x: torch.Tensor, places: torch.Tensor, features: int, base: float = 10000.0) -> torch.Tensor:
    """The rotary embedding of Meta's Llama: a product of complex numbers."""
    angles = _angles(x, places, features, base)
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


OURS = {f.__name__: f for f in (spectral, weighted, halves, interleaved)}


def evaluate(cases: ModuleType, row: Row) -> np.ndarray[Any, Any]:
    """The value and the gradients of a row, in float64."""
    tensors = [torch.tensor(x, requires_grad=x.dtype.kind == "f") for x in row.operands]
    known = {name: torch.tensor(x) for name, x in vars(cases).items() if isinstance(x, np.ndarray)}
    value = eval(row.theirs, {"torch": torch, "F": F, **OURS, **known, **dict(zip("abcd", tensors, strict=False))})
    moving = [x for x in tensors if x.requires_grad]
    gradients = torch.autograd.grad(value, moving, torch.tensor(cotangent(tuple(value.shape))))
    return joined(value.detach().numpy(), [x.numpy() for x in gradients])


if __name__ == "__main__":
    for cases in (oracle_cases, layer_oracle_cases):
        if cases.STORED.name in sys.argv[1:] or not sys.argv[1:]:
            np.savez_compressed(cases.STORED, **{row.name: evaluate(cases, row) for row in cases.CASES})
