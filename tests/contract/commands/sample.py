"""The form of the contract suite's rows, and all of them."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
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


@cache
def all_samples() -> tuple[Sample, ...]:
    """The rows of every file `samples_<family>.py` beside this one."""
    names = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])]
    files = [
        importlib.import_module(f"tests.contract.commands.{name}") for name in names if name.startswith("samples_")
    ]
    return tuple(row for file in files for row in file.SAMPLES)


def params_of(name: str) -> list[dict[str, Any]]:
    """The parameters with which the rows call a command, each once; an empty dict where there are none."""
    found: list[dict[str, Any]] = []
    for row in all_samples():
        if row.command == name and row.params not in found:
            found.append(row.params)
    return found or [{}]
