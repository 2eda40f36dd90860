"""Stores PyTorch's results for the rows of `oracle_cases.py`: `python -m tests.nn.make_oracles`, where torch is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  (PyTorch's own name for it)

from tests.nn import oracle_cases
from tests.nn.oracle_cases import CASES, STORED, Row, cotangent, joined


def evaluate(row: Row) -> np.ndarray[Any, Any]:
    """The value and the gradients of a row, in float64."""
    tensors = [torch.tensor(x, requires_grad=x.dtype.kind == "f") for x in row.operands]
    known = {name: torch.tensor(getattr(oracle_cases, name)) for name in ("WEIGHTS", "RATES", "MEAN", "VARIANCE")}
    value = eval(row.theirs, {"torch": torch, "F": F, **known, **dict(zip("abcd", tensors, strict=False))})
    moving = [x for x in tensors if x.requires_grad]
    gradients = torch.autograd.grad(value, moving, torch.tensor(cotangent(tuple(value.shape))))
    return joined(value.detach().numpy(), [x.numpy() for x in gradients])


if __name__ == "__main__":
    np.savez_compressed(STORED, **{row.name: evaluate(row) for row in CASES})
