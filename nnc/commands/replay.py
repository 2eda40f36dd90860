"""`pull_iterations`: the reverse pass of a loop that kept nothing but where it began.

The states that the pass needs are recomputed, iteration by iteration, from a few that are kept: the last kept one is advanced
to just before the iteration to pull, and on the way new ones are kept where room is. Where they go is Griewank and Walther's
optimal schedule ("Algorithm 799: revolve", 2000): with s places and every iteration run at most t times more, C(s + t, s)
iterations can be pulled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nnc.base.context import get_context
from nnc.commands.loop import ITERATION, Run, check_inputs
from nnc.errors import ArgumentError, user_error
from nnc.graph import Graph, TensorSpec, register
from nnc.graph.rules import Rules

NDArray = np.ndarray[Any, Any]
State = list[NDArray]


def places(checkpoint: str | int, iterations: int) -> int:
    """Returns the number of states that a strategy keeps for so many iterations.

    Example:
        >>> places("sqrt", 1024), places("binomial", 1024), places(3, 1024)
        (33, 11, 3)
    """
    if checkpoint == "sqrt":
        return math.isqrt(max(iterations - 1, 0)) + 2
    if checkpoint == "binomial":
        return max(iterations - 1, 0).bit_length() + 1
    return int(checkpoint)


def check_strategy(where: str, checkpoint: Any) -> None:
    """Raises unless `checkpoint` names a strategy."""
    if checkpoint is None or checkpoint in ("sqrt", "binomial"):
        return
    if isinstance(checkpoint, bool) or not isinstance(checkpoint, int) or checkpoint < 1:
        fix = 'use "sqrt", "binomial", a positive number of states to keep, or None to keep the residuals of every iteration.'
        raise user_error(ArgumentError, where, f"checkpoint is {checkpoint!r}.", fix=fix)


def split(iterations: int, room: int) -> int:
    """Returns the number of iterations to advance before keeping a state, with `iterations` left to pull and `room` places."""
    repeats = 1
    while math.comb(room + repeats, room) < iterations:
        repeats += 1
    return max(1, min(math.comb(room + repeats - 1, room), iterations - 1))


def walk_back(
    start: State, iterations: int, room: int, advance: Callable[[int, State], State]
) -> Iterator[tuple[int, State]]:
    """(iteration, state before it) for all iterations, last first, keeping at most `room` states at a time."""
    meter = get_context().meter
    kept: list[tuple[int, State]] = [(0, start)]
    size = sum(x.nbytes for x in start)
    last = iterations
    if meter is not None:
        meter.add(size)
    while last:
        position, state = kept[-1]
        if position == last - 1:
            yield position, state
            kept.pop()
            if meter is not None:
                meter.add(-size)
            last -= 1
            continue
        keep = len(kept) < room
        target = position + split(last - position, room - len(kept)) if keep else last - 1
        for step in range(position, target):
            state = advance(step, state)
        if keep:
            kept.append((target, state))
            if meter is not None:
                meter.add(size)
        else:
            yield target, state
            last -= 1
    if meter is not None:
        meter.add(-size * len(kept))


def _infer(
    *specs: TensorSpec, graphs: tuple[Graph, ...], xs: int, rows: int, carries: int, pulled: int, sums: int, length: int | None,
    checkpoint: str | int, reverse: bool = False,
) -> tuple[TensorSpec, ...]:  # fmt: skip
    advance, pull = graphs
    rest = specs[1:] if length is None else specs
    sequences, rest = rest[: xs + rows], rest[xs + rows :]
    elements = tuple(spec.update(shape=spec.shape[1:]) for spec in sequences)
    carried, moved, captured = rest[:carries], rest[carries : carries + pulled + sums], rest[carries + pulled + sums :]
    check_inputs("pull_iterations", (ITERATION, *elements[:xs], *carried, *captured), advance, "the iteration")
    check_inputs(
        "pull_iterations", (ITERATION, *elements, *carried, *moved, *captured), pull, "the pull-back of an iteration"
    )
    stacked = pull.output_specs[pulled + sums :]
    return (*moved, *(spec.update(shape=(length or 0, *spec.shape)) for spec in stacked))


def _reference(
    *arrays: NDArray, graphs: tuple[Graph, ...], run: Run, xs: int, rows: int, carries: int,
    pulled: int, sums: int, length: int | None, checkpoint: str | int, reverse: bool = False,
) -> list[NDArray]:  # fmt: skip
    advance, pull = graphs
    count, rest = (int(arrays[0]), arrays[1:]) if length is None else (length, arrays)
    sequences, rest = rest[: xs + rows], rest[xs + rows :]
    start, moved = list(rest[:carries]), list(rest[carries : carries + pulled + sums])
    captured = rest[carries + pulled + sums :]
    stacks = [np.zeros((count, *spec.shape), spec.dtype) for spec in pull.output_specs[pulled + sums :]]

    def number(step: int) -> int:
        return count - 1 - step if reverse else step

    def forward(step: int, state: State) -> State:
        at = number(step)
        return run(advance, [np.asarray(at, np.int64), *(s[at, ...] for s in sequences[:xs]), *state, *captured])

    for step, state in walk_back(start, count, places(checkpoint, count), forward):
        at = number(step)
        results = run(pull, [np.asarray(at, np.int64), *(s[at, ...] for s in sequences), *state, *moved, *captured])
        moved = results[: pulled + sums]
        for stack, row in zip(stacks, results[pulled + sums :], strict=True):
            stack[at, ...] = row
    return [*moved, *stacks]


# Operands: [length where dynamic,] sequences read, cotangents of rows, carried values at first, cotangents of the last carried
# values, sums to start from, captured values. graphs: an iteration, and its pull-back. Results: cotangents, sums, rows for
# sequences.
pull_iterations = register("pull_iterations", Rules(infer=_infer, reference=_reference), arity=None, outputs=None)
