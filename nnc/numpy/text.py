"""Arrays as text, and how much of them is shown: NumPy's print options apply to nnc arrays, too."""

from __future__ import annotations

from numpy import array2string, get_printoptions, printoptions, set_printoptions

from nnc.calls.spelling import spelled
from nnc.numpy.operands import to_value
from nnc.typing import ArrayLike

__all__ = ["array2string", "array_repr", "array_str", "get_printoptions", "printoptions", "set_printoptions"]


@spelled
def array_repr(x: ArrayLike) -> str:
    """Returns the text of `x` with its dtype.

    Args:
        x: any shape.

    Example:
        >>> array_repr(np.asarray([1, 2]))
        'Array([1, 2], dtype=int64)'
    """
    return repr(to_value(x, "array_repr"))


@spelled
def array_str(x: ArrayLike) -> str:
    """Returns the text of the elements of `x`.

    Args:
        x: any shape.

    Example:
        >>> array_str(nnp.asarray([1.0, 2.5]))
        '[1.  2.5]'
    """
    return str(to_value(x, "array_str"))
