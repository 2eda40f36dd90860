"""Branches and loops over sub-graphs."""

from __future__ import annotations

from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc.errors import NncError
from nnc.onnx.model import Node
from nnc.onnx.operators.table import operator
from nnc.onnx.values import InputsNeeded, ValueNeeded, integers, is_known, known

MOST_UNROLLED = 1000  # iterations of a loop that cannot be one of nnc's


def _is_concrete(value: Any) -> bool:
    return isinstance(value, (np.ndarray, nnc.Array))


def _arrays(value: Any) -> Any:
    return [_arrays(part) for part in value] if isinstance(value, list) else nnp.asarray(value)


@operator("If")
def branch(node: Node, predicate: Any) -> Any:
    """The branch that is taken where that is known, else both as branches of `cond`."""
    branches = (node.attributes["then_branch"], node.attributes["else_branch"])
    if _is_concrete(predicate):
        return tuple(branches[0 if np.asarray(predicate).reshape(()) else 1]())
    try:
        traced = [lambda body=body: tuple(map(_arrays, body())) for body in branches]
        return tuple(nnc.cond(nnp.reshape(predicate, ()), *traced))
    except NncError:  # branches whose results differ in shape need the predicate's value
        raise ValueNeeded(predicate, "the branch of If") from None


@operator("Loop")
def loop(node: Node, count: Any, condition: Any, *state: Any) -> Any:
    """A `while_loop` or a `scan` where all states keep their shapes; else the rounds one by one."""
    body = node.attributes["body"]
    carried = len(state)
    stacked = len(body.graph.outputs) - 1 - carried
    found = None
    are_known = all(map(is_known, state)) and is_known(count) and is_known(condition)
    if not (are_known or body.is_on_host):
        found = _traced_loop(body, count, condition, state, stacked)
    return found if found is not None else _unrolled(body, count, condition, state, stacked)


def _traced_loop(body: Any, count: Any, condition: Any, state: tuple[Any, ...], stacked: int) -> Any:
    """Returns the results of nnc's loop, or None where the body is none for it: shapes change, or are asked for."""
    if any(value is None or isinstance(value, list) for value in state) or stacked:
        return None
    begin = tuple(nnp.asarray(value) for value in state)
    goes_on = nnp.asarray(True if condition is None else condition).reshape(())

    def is_going(carry: Any) -> Any:
        at, goes_on, _ = carry
        return goes_on if count is None else goes_on & (at < nnp.reshape(count, ()))

    def step(carry: Any) -> Any:
        at, goes_on, now = carry
        again, *new = body(at, goes_on, *now)
        return at + 1, nnp.reshape(again, ()), tuple(nnp.asarray(value) for value in new)

    try:
        return tuple(nnc.while_loop(is_going, step, (nnp.asarray(0, dtype="int64"), goes_on, begin))[2])
    except (NncError, ValueNeeded, InputsNeeded):  # iterations one by one raise the error, if there is one
        return None


def _unrolled(body: Any, count: Any, condition: Any, state: tuple[Any, ...], stacked: int) -> Any:
    most = None if count is None else integers(count, "the count of Loop")[0]
    goes_on = True if condition is None else bool(known(condition, "the condition of Loop").reshape(()))
    at, now = 0, list(state)
    rounds: list[list[Any]] = [[] for _ in range(stacked)]
    while goes_on and (most is None or at < most):
        if at >= MOST_UNROLLED:
            raise ValueError(f"more than {MOST_UNROLLED} rounds of a loop whose shapes change")
        again, *found = body(np.asarray(at, np.int64), np.asarray(True), *now)
        now = found[: len(now)]
        for part, value in zip(rounds, found[len(now) :], strict=True):
            part.append(value)
        at += 1
        goes_on = bool(known(again, "the condition of Loop").reshape(())) if most is None or at < most else False
    return (*now, *(_stacked(part) for part in rounds))


def _stacked(parts: list[Any]) -> Any:
    if not parts:
        return np.zeros((0,), np.float32)
    return (np if all(isinstance(part, np.ndarray) for part in parts) else nnp).stack(parts)


def _rounds(step: Any, state: Any, xs: list[Any]) -> Any:
    if xs[0].shape[0] > MOST_UNROLLED:
        raise ValueError(f"more than {MOST_UNROLLED} rounds of a scan whose shapes change")
    found = []
    for index in range(xs[0].shape[0]):
        state, ys = step(state, tuple(x[index] for x in xs))
        found.append(ys)
    return state, tuple(map(nnp.stack, zip(*found, strict=True)))


@operator("Scan")
def batched_scan(node: Node, lengths: Any, *operands: Any) -> Any:
    """Version 8: a scan for each element of a batch."""
    count = node.attributes["num_scan_inputs"]
    if lengths is not None:
        raise NotImplementedError("form of Scan 8 with lengths of sequences")
    parts = [
        _scan(node, [nnp.asarray(value)[index] for value in operands], count) for index in range(operands[0].shape[0])
    ]
    return tuple(nnp.stack(values) for values in zip(*parts, strict=True))


@operator("Scan", since=9)
def scan(node: Node, *operands: Any) -> Any:
    return _scan(node, operands, node.attributes["num_scan_inputs"])


def _scan(node: Node, operands: Any, count: int) -> Any:
    body = node.attributes["body"]
    carried = len(operands) - count
    outputs = len(body.graph.outputs) - carried
    setting = node.attributes.get
    axes, turned = (
        setting("scan_input_axes", [0] * count),
        setting("scan_input_directions", setting("directions", [0] * count)),
    )
    xs = []
    for value, axis, is_reversed in zip(operands[carried:], axes, turned, strict=True):
        moved = nnp.moveaxis(nnp.asarray(value), axis, 0)
        xs.append(nnp.flip(moved, axis=0) if is_reversed else moved)

    def step(state: Any, now: Any) -> Any:
        found = [nnp.asarray(value) for value in body(*state, *now)]
        return tuple(found[:carried]), tuple(found[carried:])

    state = tuple(nnp.asarray(value) for value in operands[:carried])
    try:
        last, ys = nnc.scan(step, state, tuple(xs))
    except InputsNeeded:  # a shape within the body depends on the state, which the rounds one by one may know
        last, ys = _rounds(step, state, xs)
    placed, flipped = setting("scan_output_axes", [0] * outputs), setting("scan_output_directions", [0] * outputs)
    found = [
        nnp.moveaxis(nnp.flip(y, axis=0) if is_reversed else y, 0, axis)
        for y, axis, is_reversed in zip(ys, placed, flipped, strict=True)
    ]
    return (*last, *found)
