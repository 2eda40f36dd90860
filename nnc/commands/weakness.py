"""The weakness of a command's results: which of them take the dtype of arrays that they meet.

A command's float results are weak where all of its float operands are, its integer results where all of its operands are weak
integers; indices and bools do not count. So indexing, joining, reductions and formulas of Python numbers are weak without a word in
each of them. Results of conversions are strong, and so are bools and positions. Commands with sub-graphs have rules of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.graph import Command, TensorSpec

_WIDE = frozenset((dtypes.float64, dtypes.complex128))
_STRONG = frozenset({"argmax", "argmin", "argsort", "convert", "fit", "pure_callback", "searchsorted"})

_NUMBERS = MappingProxyType({"gather": 1, "dynamic_slice": 1, "scatter": 2, "dynamic_update_slice": 2})
"""How many operands of a command come before its indices."""
_RESULTS = MappingProxyType({"top_k": 1})
"""How many results of a command come before places."""


def with_inherited_weakness(
    command: Command, operands: Sequence[Any], graphs: Sequence[Any], results: Sequence[Any]
) -> Sequence[Any]:
    """Gives the results of a command the weakness that follows from these operands.

    Args:
        operands: arrays, tracers and constants.
        results: arrays or tracers, all strong.
    """
    for x in operands:
        if getattr(x, "weak", False) and not graphs:
            weak = inherited_weakness(command, operands, [result.spec for result in results])
            return [x.as_weak(kind) if kind else x for x, kind in zip(results, weak, strict=True)]
    return results


def inherited_weakness(
    command: Command, operands: Sequence[Any], results: Sequence[TensorSpec]
) -> list[dtypes.Weakness]:
    """Returns the weakness of each result of a command on these operands. Scalars are constants of formulas and do not count.

    Args:
        command: an operation without sub-graphs.
        operands: arrays, tracers and constants.
    """
    strong: list[dtypes.Weakness] = [False] * len(results)
    if command.name in _STRONG:
        return strong
    operands = operands[: _NUMBERS.get(command.name, len(operands))]
    arrays = [x for x in operands if hasattr(x, "dtype") and not isinstance(x, np.generic)]
    arrays = [x for x in arrays if not dtypes.is_bool(_dtype(x))] or arrays
    floats = [x for x in arrays if dtypes.is_inexact(_dtype(x))]
    kinds = [getattr(x, "weak", False) for x in (floats or arrays)]
    if not all(kinds):
        return strong
    if not floats:
        count = _RESULTS.get(command.name, len(results))
        return [bool(kinds) and i < count and dtypes.is_integer(spec.dtype) for i, spec in enumerate(results)]
    is_wide = any(kind is not dtypes.NUMBER and _dtype(x) in _WIDE for x, kind in zip(floats, kinds, strict=True))
    weak: dtypes.Weakness = True if is_wide else dtypes.NUMBER
    return [dtypes.is_inexact(spec.dtype) and (weak if spec.dtype in _WIDE else True) for spec in results]


def _dtype(x: Any) -> dtypes.DType:
    dtype: dtypes.DType = x.spec.dtype if hasattr(x, "spec") else x.dtype
    return dtype
