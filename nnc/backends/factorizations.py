"""Which factorisations of small matrices are printed, and which are left to LAPACK: the rule that both backends follow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nnc.base import dtypes
from nnc.graph import Attribute, TensorSpec, command

Specs = tuple[TensorSpec, ...]

printed_if_small: Attribute[bool] = Attribute(
    "printed_if_small", "whether LAPACK leaves small matrices to a printed kernel"
)

_MOST_ROWS = 32  # of small matrices in batches: 1.7 to 12 times as fast on Zen 3; at 64 rows 0.4 to 2.6 times
_MOST_ROWS_ALONE = 16  # of one alone: 1.02 to 1.6 times


def supports(specs: Specs, params: Mapping[str, Any]) -> bool:
    """Whether operands can be factorised by compiled code, printed or LAPACK's."""
    return all(spec.dtype in (dtypes.float32, dtypes.float64) and spec.size for spec in specs)


def pays(name: str, specs: Specs) -> bool:
    """Whether a printed factorisation is faster than LAPACK's, which then declines."""
    *batch, m, n = specs[0].shape
    most = _MOST_ROWS if math.prod(batch) > 1 else _MOST_ROWS_ALONE
    return printed_if_small.get(command(name), False) and supports(specs, {}) and max(m, n) <= most
