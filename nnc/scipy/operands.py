"""How the functions of nnc.scipy read numbers: without a detour through float32."""

from __future__ import annotations

from typing import Any

from nnc.array import Array, as_value
from nnc.commands.promote import as_operand, astype
from nnc.dtypes import DType


def in_dtype(x: Any, dtype: DType, where: str, name: str) -> Array:
    """An array of a dtype. Python numbers, and lists of them, keep all digits that it has."""
    value: Array = as_value(astype(as_operand(x, where, name), dtype, where))
    return value
