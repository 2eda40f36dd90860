"""Which factorisations of small matrices are printed, and which are left to LAPACK: the rule that both backends follow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nnc.base import dtypes
from nnc.graph import Attribute, TensorSpec, command

Specs = tuple[TensorSpec, ...]

printed_rows: Attribute[int] = Attribute(
    "printed_rows", "rows and columns of matrices up to which LAPACK leaves batches of them to a printed kernel"
)

_FEW = 2  # matrices that fill no vector: a kernel then computes with short ones


def supports(specs: Specs, params: Mapping[str, Any]) -> bool:
    """Whether operands can be factorised by compiled code, printed or LAPACK's."""
    return all(spec.dtype in (dtypes.float32, dtypes.float64) and spec.size for spec in specs)


def pays(name: str, specs: Specs) -> bool:
    """Whether a printed factorisation is faster than LAPACK's, which then declines."""
    most = printed_rows.get(command(name), 0)
    if math.prod(specs[0].shape[:-2]) <= _FEW:
        most //= 2
    return supports(specs, {}) and max(max(spec.shape[-2:]) for spec in specs) <= most
