"""Columns beside the rules of commands (nnc.graph.rules), and constructors for the common rules.

A family's file registers each of its commands with all that is true of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnc.base.dtypes import TAPE, DType, is_inexact
from nnc.base.records import record
from nnc.errors import AxisError, DTypeError, ShapeError, UnsupportedError, user_error
from nnc.graph import Attribute, Command, Node, TensorSpec, register
from nnc.graph import command as get_command
from nnc.graph.builder import check_same_dtype
from nnc.graph.registry import inplace, numpy_call, refuses
from nnc.graph.rules import (
    BatchRule,
    Cotangents,
    Derivative,
    Infer,
    InPlace,
    Linear,
    Reference,
    Rules,
    Tangents,
    TransposeRule,
    Value,
)


@record
class Reduction:
    """Combines elements into one, as a sum does: two at a time, in any grouping.

    Attributes:
        combine: elementwise command of two operands; associative, but for rounding, and commutative.
        identity: maps a dtype to the number that changes no other when combined with it.
        idempotent: whether an element combined with itself stays the same.
        ordered: whether cumulative results of floats are computed one after the other, because separate parts may lose all
            digits.
    """

    combine: Command
    identity: Callable[[DType], Any]
    idempotent: bool = False
    ordered: bool = False


@record
class Sum:
    """The sum of the operands, each with its sign, 1 or -1."""

    signs: tuple[int, ...]


@record
class Product:
    """A product of two operands.

    Attributes:
        factors: the positions of the two factors; twice the same one for a square.
        keeps_zero: whether 0 times an infinity, or times NaN, is 0.
    """

    factors: tuple[int, int] = (0, 1)
    keeps_zero: bool = False


@record
class Quotient:
    """Operand 0, divided by operand 1."""


@record
class Number:
    """One number everywhere: `of(**params)`. The command has no operands."""

    of: Callable[..., Any]


@record
class Counted:
    """The place of the element along the parameter `axis`."""


@record
class Gathered:
    """The element of input 0 at which the other inputs point, as in `gather`."""


Element = Sum | Product | Quotient | Number | Counted | Gathered
elements: Attribute[Element] = Attribute(
    "elements", "what each element of the result is, for commands with which passes compute"
)
together: Attribute[tuple[Command, Command]] = Attribute(
    "together",
    "another command of one operand, and the command that computes both results for the same parameters at once, this one's first",
)
expansion: Attribute[Callable[..., Value]] = Attribute(
    "expansion", "(*operands, **params) -> the result, by the simpler commands that printed kernels are made of"
)
decomposition: Attribute[Callable[..., Sequence[Value] | None]] = Attribute(
    "decomposition",
    "(*operands, **params) -> the results by other commands, for devices that have kernels of these alone; None where the command "
    "stays as it is",
)
same_bits: Attribute[bool] = Attribute(
    "same_bits",
    "True where a kernel printed from the scalar expression gives the bits of the reference, and takes much less time: calls "
    "outside of compiled functions run it, too",
)
numpy_into: Attribute[Callable[..., Callable[..., Any] | None]] = Attribute(
    "numpy_into",
    "(*specs, **params) -> a function (*arrays, out=array) that writes the command's result into an array, None where none is; "
    "commands that are a ufunc of NumPy need no cell",
)
reduction: Attribute[Reduction] = Attribute(
    "reduction", "how the command makes one element of those along its parameter `axes`, which the result has not"
)
cumulative: Attribute[Reduction] = Attribute(
    "cumulative", "how the command combines each element with those before it along its parameter `axis`"
)
SILENT_EFFECTS = ("random",)  # of nodes that do no more than compute their results
REMOVABLE_EFFECTS = ("random", "host")  # of nodes that are removed where nothing reads their results
root_of: Attribute[tuple[int, Callable[[tuple[Value, ...], Tangents], Value | None]]] = Attribute(
    "root_of",
    "(n, rule) for commands such as sqrt and abs, whose result has a power that is smoother than itself: "
    "rule(primals, tangents) is the tangent of the n-th power",
)


def may_raise(node: Node) -> bool:
    """Whether a node raises on some values of its operands."""
    rule = refuses.get(node.command, False)
    return rule(*(s.spec for s in node.inputs), **node.params) if callable(rule) else rule


def ufunc_of(command: Command, specs: Sequence[TensorSpec], params: Mapping[str, Any]) -> np.ufunc | None:
    """NumPy's ufunc that is the command on operands of these specs; None where there is none that computes with machine numbers."""
    call: Any = numpy_call.get(command, None)
    if call is not None and not isinstance(call, np.ufunc):
        call = call(*specs, **params)
    return call if isinstance(call, np.ufunc) and "O" not in call.types[0] else None


_NOTHING = InPlace()


def in_place_of(command: Command, params: Mapping[str, Any]) -> InPlace:
    """Returns which operands a command with these parameters may overwrite or pass on."""
    rule = inplace.get(command, _NOTHING)
    return rule(params) if callable(rule) else rule


# -- shared checks -----------------------------------------------------------------------------------------------------


def check_same_spec(where: str, specs: Sequence[TensorSpec]) -> TensorSpec:
    """Returns the one shape and dtype of all `specs`; raises where they differ (commands neither broadcast nor convert)."""
    check_same_dtype(where, specs)
    if any(spec.shape != specs[0].shape for spec in specs):
        problem = f"shapes differ: {', '.join(str(spec.shape) for spec in specs)}."
        operands = {f"input {i}": spec for i, spec in enumerate(specs)}
        fix = "broadcast them to one shape first, with nnp.broadcast_to or broadcast_to in a hand-built graph."
        raise user_error(ShapeError, where, problem, operands=operands, fix=fix)
    return specs[0]


def check_dtype(where: str, spec: TensorSpec, accepts: Callable[[Any], bool], wanted: str, name: str = "x") -> None:
    """Raises DTypeError unless `accepts(spec.dtype)`."""
    if not accepts(spec.dtype):
        problem = f"{name} must be {wanted}, it is {spec.dtype.name}."
        fix = f"convert it, for example with {name}.astype(...)."
        raise user_error(DTypeError, where, problem, operands={name: spec}, fix=fix)


def check_axis(where: str, axis: int, ndim: int) -> int:
    """`axis` counted from the front; raises AxisError where there is no such axis."""
    if not -ndim <= axis < ndim:
        fix = f"use an axis from {-ndim} to {ndim - 1}." if ndim else "a 0-d array has no axes."
        raise user_error(AxisError, where, f"axis {axis} is out of range for an array of {ndim} axes.", fix=fix)
    return axis % ndim


def check_axes(where: str, axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """`axes` counted from the front, in the order given; raises where one does not exist or stands twice."""
    result = tuple(check_axis(where, axis, ndim) for axis in axes)
    if len(set(result)) != len(result):
        raise user_error(ShapeError, where, f"axes {tuple(axes)} name one axis twice.", fix="name each axis once.")
    return result


# -- linear commands ---------------------------------------------------------------------------------------------------


def of_tangent(rule: Callable[..., Value | None], transpose: TransposeRule | None = None) -> Derivative:
    """Returns the rules of a command of one operand x and one result: its tangent is `rule(t, x, out, **params)`."""

    def jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], **params: Any) -> Tangents:
        return (rule(tangents[0], primals[0], outputs[0], **params),)

    return Derivative(jvp, transpose)


def linear_in_all(command: str, transpose: TransposeRule) -> Derivative:
    """Returns the rules of a command that is linear in all its differentiable operands together (a sum of linear maps, one for
    each).

    Operands whose tangent is zero are replaced by zeros; integer operands (indices) are passed on as they are.
    """

    def jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], **params: Any) -> Tangents:
        moved = [
            t if t is not None else p if not is_differentiable(p.spec) else zeros(p.spec)
            for p, t in zip(primals, tangents, strict=True)
        ]
        return (get_command(command)(*moved, **params),)

    return Derivative(jvp, transpose)


def linear_in(command: str, transposes: Mapping[int, Callable[..., Value]]) -> Derivative:
    """Returns the rules of a command that is linear in each of the operands that `transposes` names, separately (a multilinear
    one).

    `transposes[i](ct, *operands, **params)` is the cotangent of operand i.
    """

    def jvp(primals: tuple[Value, ...], tangents: Tangents, outputs: tuple[Value, ...], **params: Any) -> Tangents:
        total: Value | None = None
        for i in transposes:
            if tangents[i] is not None:
                term = get_command(command)(*primals[:i], tangents[i], *primals[i + 1 :], **params)
                total = term if total is None else add_tangents(total, term)
        return (total,)

    def transpose(cotangents: Cotangents, operands: tuple[Value | Linear, ...], **params: Any) -> Tangents:
        check_linear_in_one(command, operands)
        return rule(cotangents, operands, **params)

    rule = each(transposes)
    return Derivative(jvp, transpose)


def each(transposes: Mapping[int, Callable[..., Value]]) -> TransposeRule:
    """Returns the transpose rule in which `transposes[i](ct, *operands, **params)` is the cotangent of operand i."""

    def transpose(cotangents: Cotangents, operands: tuple[Value | Linear, ...], **params: Any) -> Tangents:
        return tuple(
            [
                transposes[i](cotangents[0], *operands, **params) if type(operand) is Linear else None
                for i, operand in enumerate(operands)
            ]
        )

    return transpose


def check_linear_in_one(command: str, operands: tuple[Value | Linear, ...]) -> None:
    """Raises UnsupportedError where more than one operand is linear: their product is not."""
    if len([x for x in operands if type(x) is Linear]) > 1:
        moving = {f"operand {i}": x.spec for i, x in enumerate(operands) if type(x) is Linear}
        raise not_linear(command, f"in {len(moving)} operands together", moving)


def not_linear(command: str, where: str, operands: Mapping[str, TensorSpec]) -> UnsupportedError:
    """Returns the error for transposing a command that is not linear `where`."""
    fix = (
        "make the function given to linear_transpose, or the rule given to custom_jvp, linear in the "
        "arguments that it differentiates."
    )
    return user_error(UnsupportedError, command, f"it is not linear {where}.", operands=operands, fix=fix)


def is_differentiable(spec: TensorSpec) -> bool:
    """Whether values of this spec have tangents: real and complex floats do."""
    return is_inexact(spec.dtype)


def zeros(spec: TensorSpec) -> Value:
    """Returns a zero value of `spec`."""
    return get_command("full")(shape=spec.shape, dtype=spec.dtype, value=0)


def add_tangents(a: Value | None, b: Value | None) -> Value | None:
    """Adds two tangents of one spec; either may be zero."""
    if a is None or b is None:
        return b if a is None else a
    return get_command("add_tapes" if a.spec.dtype == TAPE else "add")(a, b)


# -- batching ----------------------------------------------------------------------------------------------------------


def lead(size: int, x: Value, is_batched: bool) -> Value:
    """`x` with a leading batch axis: itself where it has one, else broadcast along a new one."""
    if is_batched:
        return x
    if x.spec.dtype == TAPE:
        return get_command("spread_tape")(x, count=size, axis=0)
    shape = x.spec.shape
    return get_command("broadcast_to")(x, shape=(size, *shape), axes=tuple(range(1, len(shape) + 1)))


def lead_all(size: int, operands: Sequence[Value], batched: Sequence[bool]) -> list[Value]:
    """All operands with a leading batch axis."""
    return [lead(size, x, is_batched) for x, is_batched in zip(operands, batched, strict=True)]


def behind_batch(axis: int) -> int:
    """Returns the same axis behind a new leading one; one that is counted from the end stays."""
    return axis + 1 if axis >= 0 else axis


def next_axes(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns parameters for operands with a new leading axis: `axis` and `axes` name the same axes as before."""
    moved = dict(params)
    if "axis" in params:
        moved["axis"] = behind_batch(params["axis"])
    if "axes" in params:
        moved["axes"] = tuple(map(behind_batch, params["axes"]))
    return moved


def batch_leading(command: str, shift: Callable[[Mapping[str, Any]], Mapping[str, Any]] = next_axes) -> BatchRule:
    """Adds the leading axis to every operand, and changes the parameters by `shift`."""

    def rule(size: int, operands: tuple[Value, ...], batched: tuple[bool, ...], **params: Any) -> Any:
        found = get_command(command)(*lead_all(size, operands, batched), **shift(params))
        outputs = found if isinstance(found, tuple) else (found,)
        return outputs, (True,) * len(outputs)

    return rule


def register_linear(
    name: str, infer: Infer, reference: Reference, transpose: Callable[..., Value], **rules: Any
) -> Command:
    """Registers a command that is linear in its only operand x and takes more leading axes; `transpose(ct, x, **params)` is the
    operand's cotangent.
    """
    derivative, batch = linear_in(name, {0: transpose}), batch_leading(name)
    return register(name, Rules(infer=infer, reference=reference, derivative=derivative, batch=batch, **rules))
