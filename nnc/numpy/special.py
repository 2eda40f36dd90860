"""Special functions, and sums by segment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, overload

from nnc.array.array import Array
from nnc.array.promote import astype, broadcast, promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import constants, normalize
from nnc.commands import elementwise as ew
from nnc.commands import special as commands
from nnc.commands.elementwise import FLOAT, INEXACT
from nnc.commands.index import SCATTER_MODES, scatter
from nnc.commands.reduce import reduce_max, reduce_sum
from nnc.commands.rules import check_dtype
from nnc.commands.shape import reshape
from nnc.errors import ArgumentError, OutOfBoundsError, ShapeError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy import elementwise as el
from nnc.numpy.gammas import log_beta_of_all
from nnc.numpy.operands import Axis, keep, keeps_weakness, known_or_none, static_int, to_axes, to_value, to_values
from nnc.numpy.types import iinfo
from nnc.numpy.wide import in_float64
from nnc.typing import ArrayLike

__all__ = [
    "betaln", "digamma", "erf", "erfc", "erfinv", "expit", "gammaln", "lgamma", "logit", "logsumexp", "polygamma",
     "segment_max", "segment_min", "segment_prod", "segment_sum", "xlog1py", "xlogy",
]  # fmt: skip


@spelled
def erf(x: ArrayLike, /) -> Array:
    """Returns the error function, 2/√π · the integral of exp(-t²) from 0 to x.

    Args:
        x: real, any shape.

    Example:
        >>> erf(0.0)
        Array(0., dtype=float32)
    """
    return el.call("erf", commands.erf, FLOAT, dtypes.to_float, x)


@spelled
def erfc(x: ArrayLike, /) -> Array:
    """Returns 1 - erf(x), exact for large x.

    Args:
        x: real, any shape.

    Example:
        >>> erfc(np.asarray([0.0, 10.0]))
        Array([1.00000000e+00, 2.08848758e-45], dtype=float64)
    """
    return el.call("erfc", commands.erfc, FLOAT, dtypes.to_float, x)


@spelled
def erfinv(x: ArrayLike, /) -> Array:
    """Returns the number whose error function is `x`: infinite at -1 and 1, NaN beyond.

    Args:
        x: real, any shape.

    Example:
        >>> erfinv(nnp.asarray([0.0, 0.5, 1.0]))
        Array([0.        , 0.47693628,        inf], dtype=float32)
    """
    return el.call("erfinv", commands.erfinv, FLOAT, dtypes.to_float, x)


@spelled
def lgamma(x: ArrayLike, /) -> Array:
    """Returns the logarithm of |Γ(x)|, where Γ(n + 1) = n!.

    Args:
        x: real, any shape.

    Example:
        >>> lgamma(np.asarray([1.0, 5.0]))
        Array([0.        , 3.17805383], dtype=float64)
    """
    return el.call("lgamma", commands.lgamma, FLOAT, dtypes.to_float, x)


@spelled
def digamma(x: ArrayLike, /) -> Array:
    """Returns the derivative of `lgamma`.

    Args:
        x: real, any shape.

    Example:
        >>> digamma(1.0)
        Array(-0.5772157, dtype=float32)
    """
    return polygamma(0, x)


@spelled
def polygamma(n: int, x: ArrayLike, /) -> Array:
    """Returns the derivative of order n + 1 of `lgamma`.

    Args:
        n: an integer of 0 or more.
        x: real, any shape.

    Raises:
        ArgumentError: n is negative.

    Example:
        >>> polygamma(1, 1.0)
        Array(1.644934, dtype=float32)
    """
    (x,) = promote(x, where="polygamma", to=dtypes.to_float)
    return commands.polygamma(x, n=static_int(n, "polygamma", "n"))


gammaln = lgamma


@spelled
def betaln(a: ArrayLike, b: ArrayLike, /) -> Array:
    """Returns log |B(a, b)|, where B(a, b) = Γ(a) Γ(b) / Γ(a + b).

    Args:
        a: real, any shape; broadcasts with `b`.
        b: real, any shape.

    Example:
        >>> betaln(np.float64(2), 3.0)
        Array(-2.48490665, dtype=float64)
    """
    return in_float64("betaln", log_beta_of_all, a, b)


@spelled
def expit(x: ArrayLike, /) -> Array:
    """Returns the logistic function 1 / (1 + exp(-x)), without overflow.

    Args:
        x: real, any shape.

    Example:
        >>> expit(0.0)
        Array(0.5, dtype=float32)
    """
    return el.call("expit", ew.sigmoid, FLOAT, dtypes.to_float, x)


@spelled
def logit(p: ArrayLike, /) -> Array:
    """Returns log(p / (1 - p)), the inverse of `expit`.

    Args:
        p: in [0, 1], any shape.

    Example:
        >>> logit(nnp.asarray([0.5, 1.0]))
        Array([ 0., inf], dtype=float32)
    """
    return el.log(p) - el.log1p(el.negative(p))


@spelled
def xlogy(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Returns x · log(y), and 0 where x is 0 and y a number.

    At the pole of the logarithm with x = 0 both derivatives are 0, as of a term that is left out, where JAX gives -inf and NaN.

    Args:
        x: any shape; broadcasts with `y`.
        y: any shape.

    Example:
        >>> xlogy(0.0, 0.0)
        Array(0., dtype=float32)
    """
    return _times_log("xlogy", el.log, 1.0, x, y)


@spelled
def xlog1py(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Returns x · log(1 + y), exact for small y, and 0 where x is 0 and y a number.

    At the pole of the logarithm with x = 0 both derivatives are 0, as of a term that is left out, where JAX gives -inf and NaN.

    Args:
        x: any shape; broadcasts with `y`.
        y: above -1, any shape.

    Example:
        >>> nnc.scipy.special.xlog1py(0.0, -1.0)
        Array(0., dtype=float32)
    """
    return _times_log("xlog1py", el.log1p, 0.0, x, y)


def _times_log(where: str, logarithm: Callable[[Any], Array], one: float, x: Any, y: Any) -> Array:
    """x · logarithm(y). Where x is 0 and the logarithm is no number, y is replaced by `one`, whose logarithm is 0."""
    x, y = (to_value(v, where) for v in promote(x, y, where=where, to=dtypes.to_float))
    lost = el.logical_and(el.equal(x, 0), el.logical_and(~el.isnan(y), ~el.isfinite(logarithm(y))))
    return el.multiply(x, logarithm(el.where(lost, one, y)))


@overload
def logsumexp(
    x: ArrayLike, /, axis: Axis = None, b: ArrayLike | None = None, *, keepdims: bool = False,
    return_sign: Literal[False] = False, where: ArrayLike | None = None,
) -> Array: ...  # fmt: skip
@overload
def logsumexp(
    x: ArrayLike, /, axis: Axis = None, b: ArrayLike | None = None, *, keepdims: bool = False, return_sign: Literal[True],
    where: ArrayLike | None = None,
) -> tuple[Array, Array]: ...  # fmt: skip
@keeps_weakness
def logsumexp(
    x: ArrayLike, /, axis: Axis = None, b: ArrayLike | None = None, *, keepdims: bool = False, return_sign: bool = False,
    where: ArrayLike | None = None,
) -> Any:  # fmt: skip
    """Returns log(sum of b · exp(x)) over `axis`, without overflow.

    The largest element, which is factored out, is a constant for the derivative.

    Args:
        x: any shape.
        axis: axis or axes to remove; None all.
        b: factors that broadcast with `x`, by default 1.
        keepdims: keep the axes with size 1.
        return_sign: return the logarithm of the magnitude of the sum, and its sign: 1, -1 or 0, of complex sums a number of
            magnitude 1. Without it the logarithm of a negative sum is NaN.
        where: bools that broadcast with `x`: elements that are False are left out.

    Example:
        >>> logsumexp(np.asarray([1000.0, 1000.0]))
        Array(1000.69314718, dtype=float64)
        >>> logsumexp(np.asarray([0.0, 0.0]), b=np.asarray([1.0, -3.0]), return_sign=True)
        (Array(0.69314718, dtype=float64), Array(-1., dtype=float64))
    """
    x, b = to_values("logsumexp", x=x, b=b)
    (x,) = promote(x, where="logsumexp", to=dtypes.to_float)
    check_dtype("logsumexp", x.spec, *INEXACT)
    if where is not None:
        x = el.where(where, x, -float("inf"))
    if b is not None:
        x, b = broadcast(x, astype(b, x.spec.dtype), where="logsumexp")
    axes = to_axes("logsumexp", axis, x.spec.ndim)
    dtype, has_elements = x.spec.dtype, all(x.spec.shape[i] for i in axes)
    is_complex = dtypes.is_complex(dtype)
    if b is None and has_elements and not is_complex and not return_sign:
        return keep(normalize.logsumexp(x, axes=axes), x.spec, axes, keepdims)
    x, b = (value if value is None else astype(value, dtypes.accumulator(dtype)) for value in (x, b))
    top = ew.real(x) if is_complex else x
    if b is not None:  # these elements count for the derivatives by b alone
        top = el.where(el.equal(b, 0), -float("inf"), top)
    if has_elements:
        top = keep(reduce_max(ew.stop_gradient(top), axes=axes), x.spec, axes, True)
        # NaN stays: its derivatives are then NaN everywhere
        top = el.where(el.equal(ew.abs_(top), float("inf")), 0, top)
    else:
        top = keep(reduce_sum(top, axes=axes), x.spec, axes, True)
    terms = ew.exp(x - astype(top, x.spec.dtype))
    total = keep(reduce_sum(terms if b is None else ew.safe_mul(b, terms), axes=axes), x.spec, axes, True)
    size = ew.abs_(total) if return_sign else total
    nothing = ew.equal(total, constants.full_like(total, 0))  # log 0: its value is -inf, its derivative 0
    logarithm = ew.log(ew.select(nothing, constants.full_like(size, 1), size)) + astype(top, size.spec.dtype)
    results = [el.where(nothing, -float("inf"), logarithm), *([ew.sign(total)] if return_sign else [])]
    if not keepdims:
        kept = tuple(n for i, n in enumerate(x.spec.shape) if i not in axes)
        results = [reshape(each, shape=kept) for each in results]
    results = [
        astype(each, dtypes.real_dtype(dtype) if not dtypes.is_complex(each.spec.dtype) else dtype) for each in results
    ]
    return tuple(results) if return_sign else results[0]


# -- segments ----------------------------------------------------------------------------------------------------------


_SEGMENT_ARGS = """

Args:
    data: (n, ...).
    segment_ids: (n,) integers, the segment of each row.
    num_segments: how many segments there are; may be left out where the ids are known.
    mode: treatment of an id out of range, which a negative one is: "error" raises, "drop" leaves its row out, "clip" takes the
        nearest segment, "wrap" the remainder by their number.

Returns:
    (num_segments, ...), dtype of data.

Raises:
    IndexError: an id is out of range.
    TraceError: traced ids without `num_segments`.
"""


def _segment(
    name: str, op: str, start: Callable[[dtypes.DType], Any], doc: str, example: str = ""
) -> Callable[..., Array]:
    """Combines rows by `op` into those of their ids, which hold the neutral element. An id does not count from the end."""

    def function(data: Any, segment_ids: Any, num_segments: int | None = None, *, mode: str = "error") -> Array:
        rows, ids = to_value(data, name, "data"), to_value(segment_ids, name, "segment_ids")
        if ids.spec.ndim != 1 or not rows.spec.ndim or rows.spec.shape[0] != ids.spec.shape[0]:
            problem = "segment_ids must be a vector with an entry for each row of data."
            fix = "make its size that of axis 0 of data."
            raise user_error(ShapeError, name, problem, operands={"data": rows.spec, "segment_ids": ids.spec}, fix=fix)
        check_dtype(name, ids.spec, dtypes.is_integer, "integers", "segment_ids")
        if num_segments is None:
            known = ids.concrete(name, "pass num_segments=n, so that the shape of the result is known.")
            num_segments = int(known.max()) + 1 if known.size else 0
        n = static_int(num_segments, name, "num_segments")
        if n < 0:
            problem = f"num_segments is {n}."
            raise user_error(ArgumentError, name, problem, fix="give the number of segments, 0 or more.")
        dtype = rows.spec.dtype
        empty = constants.full(shape=(n, *rows.spec.shape[1:]), dtype=dtype, value=start(dtype))
        check_choice(name, "mode", mode, SCATTER_MODES)
        _check_ids(name, ids, n, mode)
        return scatter(empty, rows, ids, axes=(0,), batch=0, mode=mode, op=op, unique=False)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc + _SEGMENT_ARGS + example
    return keeps_weakness(function)


def _check_ids(where: str, ids: Array, n: int, mode: str) -> None:
    """Raises OutOfBoundsError where ids that are known do not name a segment; a program checks the others."""
    values = known_or_none(ids) if mode == "error" else None
    if values is None:
        return
    outside = values[(values < 0) | (values >= n)]
    if outside.size:
        problem = f"segment id {outside[0]} is out of range for {n} segments."
        fix = 'give ids from 0, or mode="drop" to leave such rows out.'
        raise user_error(OutOfBoundsError, where, problem, operands={"segment_ids": ids.spec}, fix=fix)


def _lowest(dtype: dtypes.DType) -> Any:
    return -float("inf") if dtypes.is_float(dtype) else iinfo(dtype).min


def _highest(dtype: dtypes.DType) -> Any:
    return float("inf") if dtypes.is_float(dtype) else iinfo(dtype).max


segment_sum = _segment(
    "segment_sum",
    "add",
    lambda dtype: 0,
    "Returns the sum of the rows of each segment: out[s] = sum of data[i] where segment_ids[i] = s.",
    """
Example:
    >>> nnp.segment_sum(np.asarray([1.0, 2.0, 4.0]), np.asarray([0, 0, 2]), 3)
    Array([3., 0., 4.], dtype=float64)
""",
)
segment_prod = _segment(
    "segment_prod",
    "mul",
    lambda dtype: 1,
    "Returns the product of the rows of each segment, 1 of none.",
    """
Example:
    >>> nnp.segment_prod(np.asarray([3.0, 2.0, 4.0]), np.asarray([0, 0, 2]), 3)
    Array([6., 1., 4.], dtype=float64)
""",
)
segment_max = _segment(
    "segment_max",
    "max",
    _lowest,
    "Returns the largest of each segment, the least value (-inf) of none.",
    """
Example:
    >>> nnp.segment_max(np.asarray([3.0, 2.0, 4.0]), np.asarray([0, 0, 2]), 3)
    Array([  3., -inf,   4.], dtype=float64)
""",
)
segment_min = _segment(
    "segment_min",
    "min",
    _highest,
    "Returns the smallest of each segment, the greatest value (inf) of none.",
    """
Example:
    >>> nnp.segment_min(np.asarray([3.0, 2.0, 4.0]), np.asarray([0, 0, 2]), 3)
    Array([ 2., inf,  4.], dtype=float64)
""",
)
