"""Collectives: commands that join the values which the places along a named axis hold.

The last operand of each, `index`, is the number of the place, a value that differs from place to place along this axis alone. It
tells which axis is meant: dispatch finds the trace of the axis by it, and a batching rule to which it comes with the batch axis
joins rows; else the rule only adds an axis to the operand. nnc/trace/core/named.py makes it.

`psum` takes values that differ from place to place to one that is the same everywhere, `pvary` back; each is the other's transpose.
References compute the result of a place where all places hold these operands.

Where the places are processes, a collective has one more parameter, `stride`: the process of rank `r` is number
`r // stride % size` along the axis, and joins its values with the processes whose other numbers are its own. Then only kernels of a
library that knows the processes run it (nnc/backends/mpi).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.commands.elementwise import convert, equal, mul, select
from nnc.commands.index import gather, move_axis
from nnc.commands.reduce import reduce_max, reduce_min, reduce_sum
from nnc.commands.rules import check_dtype, lead, linear_in, zeros
from nnc.commands.shape import broadcast_to, transpose
from nnc.errors import BackendError, DTypeError, InternalError, ShapeError, user_error
from nnc.graph import Command, TensorSpec, register
from nnc.graph.rules import BatchRule, Derivative, Infer, Rules, Tangents, Value

NDArray = np.ndarray[Any, Any]
Batched = tuple[tuple[Value, ...], tuple[bool, ...]]
Perm = tuple[tuple[int, int], ...]
INDEX = TensorSpec((), dtypes.int32)  # of the number of a place
# Commands where each element of the result depends only on the elements at its place: operands may be joined into one.
BY_ELEMENTS = frozenset({"psum", "pmax", "pmin"})
EQUALISING = BY_ELEMENTS | {"all_gather_same"}  # the result is the same at all places along the axis


def _check_index(name: str, index: TensorSpec) -> None:
    if index != INDEX:
        problem = "its last operand must be the number of the place."
        fix = "call the function of nnc of the same name within a named axis."
        raise user_error(ShapeError if index.shape else DTypeError, name, problem, operands={"index": index}, fix=fix)


def _in_one_process(reference: Callable[..., NDArray]) -> Callable[..., NDArray]:
    """Returns a reference, which knows nothing of other processes: of a collective of several, it is asked only for the error."""

    def run(x: NDArray, index: NDArray, *, stride: int = 0, **params: Any) -> NDArray:
        if stride:
            problem = "the library that joins the values of processes reported a failure."
            operands = {"value": TensorSpec(x.shape, x.dtype)}
            fix = "check that all processes run the same program on arrays of the same shapes and dtypes."
            raise user_error(BackendError, "nnc.distributed", problem, operands=operands, fix=fix)
        return reference(x, index, **params)

    return run


def _same(name: str) -> Callable[..., TensorSpec]:
    """Returns the shape rule of commands whose result is like their operand."""

    def infer(x: TensorSpec, index: TensorSpec, **params: Any) -> TensorSpec:
        _check_index(name, index)
        return x

    return infer


def _register(
    name: str, infer: Infer, reference: Callable[..., NDArray], derivative: Derivative, batch: BatchRule,
    cost: Callable[..., int] = lambda x, index, **params: 0,
) -> Command:  # fmt: skip
    rules = Rules(
        infer=infer,
        reference=_in_one_process(reference),
        derivative=derivative,
        batch=batch,
        cost=cost,
        effect="collective",
    )
    return register(name, rules, arity=2)


def _size(x: TensorSpec, index: TensorSpec, **params: Any) -> int:
    return x.size


def _linear(name: str, pull: Callable[..., Value]) -> Derivative:
    """Returns the rules of a command that is linear in its first operand; `pull` is its transpose."""
    return linear_in(name, {0: lambda ct, x, index, **params: pull(ct, index, **params)})


def _rows(size: int, x: Value, batched: bool, rows: int) -> Value:
    """Returns the operand with the batch axis, whose rows are the places of the axis."""
    if rows != size:
        problem = f"a named axis of {size} places was mapped as one of {rows} rows."
        raise user_error(ShapeError, "vmap", problem, fix="map a whole named axis at once.")
    return lead(rows, x, batched)


# -- sums --------------------------------------------------------------------------------------------------------------


def _times(x: Value, size: int) -> Value:
    """`x` times the number of places."""
    return mul(x, broadcast_to(np.asarray(size, x.spec.dtype), shape=x.spec.shape))


def _psum_batch(rows: int, operands: tuple[Value, ...], batched: tuple[bool, ...], **params: Any) -> Batched:
    x, index = operands
    if not batched[1]:
        return (psum(x, index, **params),), (True,)
    if not batched[0]:
        return (_times(x, params["size"]),), (False,)
    return (reduce_sum(_rows(params["size"], x, True, rows), axes=(0,)),), (False,)


def _psum_infer(x: TensorSpec, index: TensorSpec, **params: Any) -> TensorSpec:
    _check_index("psum", index)
    check_dtype("psum", x, lambda dtype: not dtypes.is_bool(dtype), "a number")
    return x


psum: Command = _register(
    "psum", _psum_infer, lambda x, index, *, size, **params: (x * np.asarray(size, x.dtype)).astype(x.dtype),
    _linear("psum", lambda *x, **p: pvary(*x, **p)), _psum_batch, _size,
)  # fmt: skip


def _pvary_batch(rows: int, operands: tuple[Value, ...], batched: tuple[bool, ...], **params: Any) -> Batched:
    return ((operands[0] if batched[1] else pvary(*operands, **params)),), (batched[0],)


pvary: Command = register(
    "pvary", Rules(
        infer=_same("pvary"), reference=lambda x, index, **params: np.array(x),
        derivative=_linear("pvary", lambda *x, **p: psum(*x, **p)), batch=_pvary_batch,
        refuses=False, cost=lambda x, index, **params: 0,
    ), arity=2,
)  # fmt: skip

# -- extrema -----------------------------------------------------------------------------------------------------------


def _extremum(name: str, reduce: Command) -> Command:
    def infer(x: TensorSpec, index: TensorSpec, **params: Any) -> TensorSpec:
        _check_index(name, index)
        check_dtype(name, x, lambda dtype: not dtypes.is_complex(dtype), "real")
        return x

    def batch(rows: int, operands: tuple[Value, ...], batched: tuple[bool, ...], **params: Any) -> Batched:
        x, index = operands
        if not batched[1]:
            return (command(x, index, **params),), (True,)
        return (reduce(_rows(params["size"], x, True, rows), axes=(0,)) if batched[0] else x,), (False,)

    def jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], **params: Any) -> Tangents:
        """Returns the tangent of the place that holds the extreme element; places with equal ones share it equally."""
        x, index = primals
        at = convert(equal(x, pvary(outputs[0], index, **params)), dtype=x.spec.dtype)
        return (psum(mul(tangents[0], at), index, **params) / psum(at, index, **params),)

    command = _register(name, infer, lambda x, index, **params: np.array(x), Derivative(jvp), batch, _size)
    return command


pmax: Command = _extremum("pmax", reduce_max)
pmin: Command = _extremum("pmin", reduce_min)

# -- all_gather and psum_scatter ---------------------------------------------------------------------------------------


def _gathering(name: str, pull: Callable[..., Value]) -> Command:
    def infer(x: TensorSpec, index: TensorSpec, *, size: int, **params: Any) -> TensorSpec:
        _check_index(name, index)
        return x.update(shape=(size, *x.shape))

    def batch(rows: int, operands: tuple[Value, ...], batched: tuple[bool, ...], **params: Any) -> Batched:
        x, index = operands
        if not batched[1]:
            return (move_axis(command(x, index, **params), 1, 0),), (True,)
        return (_rows(params["size"], x, batched[0], rows),), (False,)

    command = _register(
        name, infer, lambda x, index, *, size, **params: np.stack([x] * size), _linear(name, pull), batch
    )
    return command


all_gather: Command = _gathering("all_gather", lambda *x, **p: psum_scatter(*x, **p))

# The values of all places, which count as the same everywhere; the transpose gives each place its part.
all_gather_same: Command = _gathering(
    "all_gather_same", lambda ct, index, **params: gather(ct, index, axes=(0,), batch=0, mode="clip")
)


def _check_parts(name: str, x: TensorSpec, size: int) -> None:
    if not x.shape or x.shape[0] != size:
        problem = f"axis 0 of the operand must have one element for each of the {size} places."
        raise user_error(ShapeError, name, problem, operands={"x": x}, fix="split the axis first.")


def _psum_scatter_infer(x: TensorSpec, index: TensorSpec, *, size: int, **params: Any) -> TensorSpec:
    _psum_infer(x, index)
    _check_parts("psum_scatter", x, size)
    return x.update(shape=x.shape[1:])


def _psum_scatter_batch(rows: int, operands: tuple[Value, ...], batched: tuple[bool, ...], **params: Any) -> Batched:
    x, index = operands
    if not batched[1]:
        return (psum_scatter(move_axis(x, 0, 1), index, **params),), (True,)
    return (
        reduce_sum(_rows(params["size"], x, True, rows), axes=(0,)) if batched[0] else _times(x, params["size"]),
    ), (True,)


psum_scatter: Command = _register(
    "psum_scatter", _psum_scatter_infer,
    lambda x, index, *, size, **params: (x[int(index)] * np.asarray(size, x.dtype)).astype(x.dtype),
    _linear("psum_scatter", lambda *x, **p: all_gather(*x, **p)), _psum_scatter_batch, _size,
)  # fmt: skip

# -- all_to_all and ppermute -------------------------------------------------------------------------------------------


def _all_to_all_infer(x: TensorSpec, index: TensorSpec, *, size: int, **params: Any) -> TensorSpec:
    _check_index("all_to_all", index)
    _check_parts("all_to_all", x, size)
    return x


def _all_to_all_batch(rows: int, operands: tuple[Value, ...], batched: tuple[bool, ...], **params: Any) -> Batched:
    x, index = operands
    if not batched[1]:
        return (move_axis(all_to_all(move_axis(x, 0, 1), index, **params), 1, 0),), (True,)
    x = _rows(params["size"], x, batched[0], rows)
    return (transpose(x, permutation=(1, 0, *range(2, x.spec.ndim))),), (True,)


# Part k goes to place k, which stacks the parts that it gets in the order of the places.
all_to_all: Command = _register(
    "all_to_all", _all_to_all_infer, lambda x, index, *, size, **params: np.stack([x[int(index)]] * size),
    _linear("all_to_all", lambda *x, **p: all_to_all(*x, **p)), _all_to_all_batch,
)  # fmt: skip


def _backwards(perm: Perm) -> Perm:
    return tuple((target, source) for source, target in perm)


def _ppermute_batch(
    rows: int, operands: tuple[Value, ...], batched: tuple[bool, ...], size: int, perm: Perm, **params: Any
) -> Batched:
    x, index = operands
    if not batched[1]:
        return (ppermute(x, index, size=size, perm=perm, **params),), (True,)
    x = _rows(size, x, batched[0], rows)
    sources = dict(_backwards(perm))
    if x.spec.size:
        x = gather(x, np.asarray([sources.get(k, 0) for k in range(size)]), axes=(0,), batch=0, mode="clip")
    if len(sources) < size:
        got = np.asarray([k in sources for k in range(size)])
        x = select(broadcast_to(got, shape=x.spec.shape, axes=(0,)), x, zeros(x.spec))
    return (x,), (True,)


def _ppermute_reference(x: NDArray, index: NDArray, *, perm: Perm, **params: Any) -> NDArray:
    return np.array(x) if int(index) in dict(_backwards(perm)) else np.zeros_like(x)


# perm: pairs (source, target); places that are no target get zeros.
ppermute: Command = _register(
    "ppermute", _same("ppermute"), _ppermute_reference,
    _linear("ppermute", lambda ct, index, perm, **params: ppermute(ct, index, perm=_backwards(perm), **params)),
    _ppermute_batch,
)  # fmt: skip

# -- processes ---------------------------------------------------------------------------------------------------------


def _one_process(*, stride: int, size: int) -> NDArray:
    raise InternalError("the number of a process was asked for without a library that knows it")


# The number of the process along an axis: found when the program runs, so that the program is the same for all processes.
process_index: Command = register(
    "process_index", Rules(
        infer=lambda *, stride, size: INDEX, reference=_one_process, effect="host", cost=lambda **params: 0,
    ), arity=0,
)  # fmt: skip
