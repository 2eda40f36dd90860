"""The form of the contract suite's rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Sample:
    """Operands and parameters on which a command is held against its contract.

    `differentiable` names the operands whose derivatives are checked (None: all floats); `dtypes` the float dtypes that float
    operands are tried in; `tolerance` multiplies the bounds.
    """

    command: str
    operands: tuple[Any, ...]
    params: dict[str, Any] = field(default_factory=dict)
    differentiable: tuple[int, ...] | None = None
    dtypes: tuple[str, ...] = FLOATS
    tolerance: float = 1.0

    def __str__(self) -> str:
        shapes = ",".join("x".join(map(str, np.shape(x))) or "0d" for x in self.operands)
        return f"{self.command}-{shapes}-{'-'.join(f'{k}={v}' for k, v in self.params.items())}"
