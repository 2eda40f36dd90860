"""Modes that can be switched on within a block. They hold for the thread that enters the block, and for functions that it calls."""

from __future__ import annotations

from nnc.array.promotion_watch import WATCHED, PromotionWatch
from nnc.base.context import ContextChange, get_context, set_context, with_mode
from nnc.errors.errors import check_choice
from nnc.random.reuse import KeyLedger


def check_finite() -> ContextChange:
    """Within the block, the first command that makes a NaN or an infinity raises and names the user's line.

    Eager commands look at their results. Compiled functions are compiled once more, with a look at every result, in loops and
    branches, too; the ordinary program is there again after the block. An infinity that is written down (a mask of -inf) is
    none that was made, and NaN that commands such as `nnp.nan_to_num` remove is none that counts.

    Raises:
        NotFiniteError: from the call that made it. It is a FloatingPointError, too.

    Example:
        >>> with nnc.debug.check_finite():
        ...     nnc.compile(lambda x: nnp.log(x) * 0)(0.0)
        Traceback (most recent call last):
        ...
        nnc.errors.NotFiniteError: log: 1 of 1 elements of its result are not finite ...
        ...
    """
    return with_mode("check_finite")


def check_keys() -> ContextChange:
    """Within the block, a random key that is used twice gives a warning, `nnc.random.KeyReuseWarning`, with both lines.

    Draws, splits and folds use a key. Two branches of a condition may use the same one; a loop whose iterations all use one may
    not. Looking at keys takes time, so this is for tests and for debugging; a function that is compiled already is not looked at.

    Example:
        >>> import warnings
        >>> with nnc.debug.check_keys(), warnings.catch_warnings(record=True) as found:
        ...     warnings.simplefilter("always")
        ...     key = nnc.random.key(0)
        ...     x, y = nnc.random.normal(key), nnc.random.uniform(key)
        >>> print(str(found[0].message).splitlines()[0])
        nnc.random: the same key is used twice, so the draws are not independent.
    """
    return with_mode(KeyLedger())


def eager() -> ContextChange:
    """Within the block, functions made by `nnc.compile` run command by command, without tracing.

    So a debugger stops in them at values, and `print` shows those.

    Example:
        >>> f = nnc.compile(lambda x: x + 1 if x > 0 else x)  # decides on a value, so it cannot be traced
        >>> with nnc.debug.eager():
        ...     f(1.0)
        Array(2., dtype=float32)
    """
    return with_mode("eager")


def promotion(action: str = "warn") -> ContextChange:
    """Within the block, the line where floats of fewer bits first meet float64 is named: a float32 program that widens is slower.

    Each line is named once, with the operands, in eager calls and while functions are traced; functions that were compiled before
    are traced once more. Python numbers and `numpy.float64` scalars are weak, so they widen nothing; NumPy's arrays do.

    Args:
        action: "warn" gives a `nnc.debug.PromotionWarning`, "error" raises.

    Raises:
        DTypeError: from the call that widens, with "error".
        ArgumentError: there is no such action.

    Example:
        >>> with nnc.debug.promotion("error"):
        ...     nnc.compile(lambda x: x * np.ones(2))(nnp.ones(2))
        Traceback (most recent call last):
        ...
        nnc.errors.DTypeError: mul: operands of fewer bits meet float64, so the result is float64...
        ...
    """
    check_choice("nnc.debug.promotion", "action", action, ("warn", "error"))
    others = {mode for mode in get_context().modes if not isinstance(mode, PromotionWatch)}
    return set_context(modes=frozenset({*others, PromotionWatch(action), WATCHED}))


def trace_errors() -> ContextChange:
    """Within the block, tracebacks show the frames of nnc, too, that led from the user's line to the mistake.

    Example:
        >>> with nnc.debug.trace_errors():
        ...     nnc.compile(lambda x: x @ x)(1.0)
        Traceback (most recent call last):
        ...
        nnc.errors.ShapeError: ...
    """
    return with_mode("trace_errors")
