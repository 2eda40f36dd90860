"""The watch over float64: warns, or raises, where operands of float32 meet float64."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from typing import Any

from nnc.base import dtypes
from nnc.base.context import get_context
from nnc.base.source import SourceLine, user_source
from nnc.errors import DTypeError, user_error

WATCHED = "promotion"  # the mode in which every function looks at its operands, also if it was called before


class PromotionWarning(UserWarning):
    """Operands of float32 meet float64, and the result is float64.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as found, nnc.debug.promotion("warn"):
        ...     warnings.simplefilter("always")
        ...     x = nnp.ones(2) * np.ones(2)
        >>> found[0].category.__name__
        'PromotionWarning'
    """


class PromotionWatch:
    """The lines that were named within one block; one of the modes.

    Args:
        action: "warn" or "error".

    Attributes:
        traced: compiled functions, with the keys of calls, that were traced within the block.
    """

    __slots__ = ("_lines", "action", "traced")

    def __init__(self, action: str) -> None:
        self.action = action
        self._lines: set[SourceLine | None] = set()
        self.traced: set[Hashable] = set()

    def note(self, where: str, dtype: dtypes.DType, operands: Mapping[str, Any]) -> None:
        """Names the user's line, unless it was named before.

        Raises:
            DTypeError: the action is "error".
        """
        line = get_context().source or user_source()
        if line in self._lines:
            return
        reason = f"operands of fewer bits meet {dtype.name}, so the result is {dtype.name}."
        fix = (
            "make the wide operand float32 where it comes from: x.astype('float32') for a NumPy array, which is float64 "
            "unless told otherwise."
        )
        problem = user_error(DTypeError, where, reason, operands=operands, source=line, fix=fix)
        if self.action == "error":
            raise problem
        self._lines.add(line)
        place = (line.file, line.line) if line is not None else ("<unknown>", 0)
        warnings.warn_explicit(str(problem), PromotionWarning, *place)


def promotion_watch() -> PromotionWatch | None:
    """Returns the innermost watch that is switched on; None where there is none."""
    modes = get_context().modes
    return next((mode for mode in modes if isinstance(mode, PromotionWatch)), None) if WATCHED in modes else None


def is_widened(dtype: dtypes.DType, strong: list[dtypes.DType]) -> bool:
    """Whether operands of these dtypes, whose common dtype is `dtype`, are floats of several widths, the widest of 64 bits."""
    return dtypes.real_dtype(dtype) == dtypes.float64 and any(
        dtypes.is_inexact(own) and dtypes.real_dtype(own) != dtypes.float64 for own in strong
    )
