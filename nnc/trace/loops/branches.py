"""Branches for users: all are traced once, as sub-graphs of one node, and one of them runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from nnc import tree
from nnc.array.array import Array, as_value
from nnc.array.promote import as_operand, astype, is_weak, with_weakness
from nnc.base import dtypes
from nnc.base.context import activity
from nnc.calls.spelling import spelled
from nnc.commands.elementwise import convert, maximum, minimum, select
from nnc.commands.loop import case_of as case_command
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError, user_error
from nnc.errors.errors import check_choice
from nnc.errors.tracebacks import api_boundary
from nnc.graph import TensorSpec, bind
from nnc.graph.rules import Value
from nnc.trace.core.axes import NOWHERE, Axes, union, vary, varying_over
from nnc.trace.core.flat import FlatTree, call_function, check_callable, definition_of, name_of
from nnc.trace.core.named import refuse_joins
from nnc.trace.core.specs import argument_spec
from nnc.trace.core.staging import Staged, axes_of, stage
from nnc.trace.loops.branch_rules import share_captures
from nnc.trace.loops.carry import check_settings, takes
from nnc.typing import Leaf, R, Ts

__all__ = ["case_of", "cond", "switch"]

Fun = Callable[..., Any]


@overload
def cond(pred: Leaf, true_fun: Callable[[*Ts], Leaf], false_fun: Callable[[*Ts], Leaf], *operands: *Ts) -> Array: ...
@overload
def cond(pred: Leaf, true_fun: Callable[[Array], R], false_fun: Callable[[Array], R], operand: Leaf, /) -> R: ...
@overload
def cond(pred: Leaf, true_fun: Callable[[*Ts], R], false_fun: Callable[[*Ts], R], *operands: *Ts) -> R: ...
@api_boundary  # type: ignore[misc]  # mypy tells *Ts from *Any
def cond(pred: Any, true_fun: Fun, false_fun: Fun, *operands: Any) -> Any:
    """`true_fun(*operands)` where `pred` holds, else `false_fun(*operands)`; only one of them runs.

    Args:
        pred: bool scalar.
        true_fun: runs where `pred` holds.
        false_fun: runs where it does not; both results have the same structure, shapes and dtypes.
        *operands: arguments of the branches, pytrees.

    Raises:
        TreeError, ShapeError: the results differ; every differing path is listed.

    Example:
        >>> nnc.cond(True, lambda x: x + 1, lambda x: x - 1, 3.0)
        Array(4., dtype=float32)
    """
    x = as_value(as_operand(pred, "nnc.cond", "pred"))
    if x.spec.shape != ():
        fix = "reduce it with .any() or .all(), or choose element by element with nnp.where."
        raise user_error(ShapeError, "nnc.cond", "pred must be a scalar.", operands={"pred": x.spec}, fix=fix)
    index = convert(x if dtypes.is_bool(x.spec.dtype) else x != 0, dtype=dtypes.int64)
    return _branch("nnc.cond", index, (false_fun, true_fun), operands, checked=False)


@spelled
def switch(index: Leaf, branches: Sequence[Callable[..., R]], *operands: object, mode: str = "error") -> R:
    """`branches[index](*operands)`; only that one runs.

    Args:
        index: integer scalar.
        branches: functions with results of one structure, shapes and dtypes.
        *operands: arguments of the branches, pytrees.
        mode: "error" raises for an index out of range, "clip" takes the nearest branch.

    Raises:
        OutOfBoundsError (an IndexError): the index is out of range.
        TreeError, ShapeError: the results differ.

    Example:
        >>> nnc.switch(1, [lambda x: x, lambda x: x * 2], 3.0)
        Array(6., dtype=float32)
    """
    check_choice("nnc.switch", "mode", mode, ("error", "clip"))
    position = _index("nnc.switch", index)
    if mode == "clip":
        position = minimum(maximum(position, np.int64(0)), np.int64(len(branches) - 1))
    return _branch("nnc.switch", position, tuple(branches), operands, checked=mode == "error")


@spelled
def case_of(
    index: Leaf,
    branches: Sequence[Callable[..., R]] | Mapping[int, Callable[..., R]],
    *operands: object,
    bypass: object = None,
) -> R:
    """Returns the branch of number `index` on `operands`; where there is none, no branch runs and the result is `bypass`.

    Args:
        index: integer scalar.
        branches: functions in order from 0, or a dict from number to function.
        *operands: arguments of the branches, pytrees.
        bypass: a pytree like the branches' results; by default the operands (the operand itself, where there is one).

    Returns:
        the result. The gradient of a bypassed call goes straight to `bypass`.

    Raises:
        ArgumentError: there is no branch.
        TreeError, ShapeError: results or `bypass` differ in structure, shapes or dtypes.

    Example:
        >>> nnc.case_of(-1, [nnp.zeros_like], 3.0)
        Array(3., dtype=float32)
    """
    position = _index("nnc.case_of", index)
    functions = dict(branches) if isinstance(branches, Mapping) else dict(enumerate(branches))
    _check_some("nnc.case_of", functions)
    default = bypass if bypass is not None else operands[0] if len(operands) == 1 else operands
    slots = np.int64(len(functions))
    chosen: Any = slots
    for place, number in enumerate(functions):
        chosen = select(position == number, as_value(np.int64(place)), as_value(chosen))
    return _branch("nnc.case_of", chosen, (*functions.values(), _Bypass(default)), operands, checked=False)


@dataclass(frozen=True, slots=True, eq=False)
class _Bypass:
    """The branch of `case_of` that stands for no branch."""

    value: Any

    @property
    def __name__(self) -> str:
        """The name in messages."""
        return "bypass"

    def __call__(self, *_: Any) -> Any:
        return self.value


def _index(where: str, index: Any) -> Value:
    x = as_value(as_operand(index, where, "index"))
    if x.spec.shape != () or not (dtypes.is_integer(x.spec.dtype) or dtypes.is_bool(x.spec.dtype)):
        problem = "the index must be an integer scalar."
        fix = "convert it with .astype(int)."
        raise user_error(ArgumentTypeError, where, problem, operands={"index": x.spec}, fix=fix)
    return x if x.spec.dtype == dtypes.int64 else convert(x, dtype=dtypes.int64)


def _check_some(where: str, branches: Collection[Any]) -> None:
    if not branches:
        raise user_error(ArgumentError, where, "there is no branch.", fix="give at least one function.")


def _branch(where: str, index: Value, branches: Sequence[Fun], operands: tuple[Any, ...], checked: bool) -> Any:
    """Traces all branches on the operands and binds one node that runs one of them; `checked`: the index may be out of range."""
    _check_some(where, branches)
    for branch in branches:
        check_callable(branch, where)
    given, fix = FlatTree(operands), f"give every branch one parameter for each of the {len(operands)} operands."
    leaves = [as_operand(leaf, where, "an operand") for leaf in given.dynamic]
    entry = varying_over(index) or NOWHERE
    if entry:  # places take different branches
        leaves = [vary(leaf, entry) for leaf in leaves]
    axes = axes_of(leaves)
    specs = [argument_spec(leaf) for leaf in leaves]
    traced: list[tuple[Staged, FlatTree, list[dtypes.Weakness]]] = []
    for branch in branches:
        box: list[Any] = []

        def body(*values: Any, branch: Fun = branch, box: list[Any] = box) -> list[Any]:
            result = FlatTree(call_function(branch, given.build(values), where=where, fix=fix))
            box.append(result)
            found = [as_operand(leaf, where, "a result") for leaf in result.dynamic]
            box.append([is_weak(x) for x in found])
            return [as_value(x) for x in found]

        with activity(f"tracing {name_of(branch)} for {where.removeprefix('nnc.')}"):
            weak_leaves = [is_weak(leaf) for leaf in leaves]
            staged = stage(body, specs, weak=weak_leaves, name=name_of(branch), axes=axes, entry=entry)
        traced.append((staged, box[0], box[1]))
    _check_results(where, branches, traced)
    refuse_joins(where, "the index", [staged.graph for staged, _, _ in traced], entry)
    stages = _common_specs(traced, axes, entry)
    captured, graphs = share_captures(stages)
    values = [astype(leaf, spec.dtype, where) for leaf, spec in zip(leaves, specs, strict=True)]
    results = bind(case_command, [index, *values, *captured], {"checked": checked}, graphs)
    columns = zip(*[zip(s.graph.output_specs, weak, strict=True) for s, _, weak in traced], strict=True)
    weak = [dtypes.joint_weakness([(spec.dtype, kind) for spec, kind in column]) for column in columns]
    return traced[0][1].build([with_weakness(x, w) for x, w in zip(results, weak, strict=True)])


def _common_specs(
    traced: Sequence[tuple[Staged, FlatTree, list[dtypes.Weakness]]], axes: Sequence[Axes | None] | None, entry: Axes
) -> list[Staged]:
    """Returns the branches with weak results (Python numbers) converted to the dtype of the others, and results that vary over
    the named axes over which those of some branch do, or its index.
    """
    stages = []
    wanted = _wanted(traced)
    columns = zip(*[staged.axes for staged, _, _ in traced], strict=True)
    spread = [NOWHERE] * len(wanted) if axes is None else [union([entry, *column]) for column in columns]
    for staged, _, _ in traced:
        graph = staged.graph
        varies = axes is not None and list(staged.axes) != spread
        if varies or any(s.dtype != t for s, t in zip(graph.output_specs, wanted, strict=True)):

            def body(*values: Any, staged: Staged = staged) -> list[Any]:
                found = staged.graph.evaluate([*values, *staged.captured])
                return [vary(astype(as_value(x), t), over) for x, t, over in zip(found, wanted, spread, strict=True)]

            staged = stage(body, graph.input_specs[: staged.num_explicit], name=graph.name, axes=axes)
        stages.append(staged)
    return stages


def _wanted(traced: Sequence[tuple[Staged, FlatTree, list[dtypes.Weakness]]]) -> list[Any]:
    """Returns the dtype of each result: the first branch's where it is no Python number."""
    columns = zip(*[staged.graph.output_specs for staged, _, _ in traced], strict=True)
    return [_strong(column, [weak[i] for _, _, weak in traced]) for i, column in enumerate(columns)]


def _strong(column: Sequence[TensorSpec], weak: Sequence[dtypes.Weakness]) -> Any:
    strong = [spec.dtype for spec, w in zip(column, weak, strict=True) if not w]
    if strong:
        return strong[0]
    result = column[0].dtype
    for spec in column[1:]:
        result = dtypes.promote_types(result, spec.dtype)
    return result


def _check_results(
    where: str, branches: Sequence[Fun], traced: Sequence[tuple[Staged, FlatTree, list[dtypes.Weakness]]]
) -> None:
    first, tree0, weak0 = traced[0]
    names = [f"{name_of(branch)}'s result" for branch in branches]
    functions = (branch for branch in branches if not isinstance(branch, _Bypass))
    places = {f"branch {i}": definition_of(branch) for i, branch in enumerate(functions)}
    for name, (staged, result, _) in zip(names[1:], traced[1:], strict=True):
        if result.treedef != tree0.treedef:
            raise tree.tree_mismatch(
                where, names[0], tree0.build(first.graph.output_specs), name, result.build(staged.graph.output_specs),
                operands=places, fix="let all branches return the same structure.",
            )  # fmt: skip
        check_settings(where, names[0], tree0, name, result)
    wanted = _wanted(traced)
    for fun, (staged, result, weak) in zip(branches[1:], traced[1:], strict=True):
        pairs = zip(first.graph.output_specs, weak0, staged.graph.output_specs, weak, strict=True)
        lines = [
            f"  result{path}: {_shown(a, w0)} from {name_of(branches[0])}, {_shown(b, w)} from {name_of(fun)}"
            for path, dtype, (a, w0, b, w) in zip(result.paths(), wanted, pairs, strict=True)
            if a.shape != b.shape or not (_becomes(a.dtype, w0, dtype) and _becomes(b.dtype, w, dtype))
        ]
        if lines:
            problem = "the branches return other shapes or dtypes:\n" + "\n".join(lines)
            fix = "make them equal, for example with .astype(...) or nnp.broadcast_to."
            raise user_error(ShapeError, where, problem, operands=places, fix=fix)


def _shown(spec: TensorSpec, weak: dtypes.Weakness) -> TensorSpec:
    return spec.update(dtype=dtypes.shown_dtype(spec.dtype, weak))


def _becomes(own: Any, weak: dtypes.Weakness, wanted: Any) -> bool:
    return own == wanted or (weak and takes(wanted, own))
