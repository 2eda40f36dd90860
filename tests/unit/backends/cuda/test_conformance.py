"""Nests that are printed for a GPU agree with the references: every command that they run, in every dtype, on any layout.

The cases are those of the CPU's printer (`tests/unit/lower/kernels/test_conformance.py`); the kernels run in the interpreter of
PTX, which checks each access.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from nnc.graph import Command, reference
from nnc.graph import command as command_of
from tests.unit.backends.cpu.against_reference import LAYOUTS as PLACES
from tests.unit.backends.cpu.against_reference import REAL, odd
from tests.unit.backends.cuda.launching import run_nests
from tests.unit.lower.kernels.test_conformance import (
    ROWS,
    SHAPES,
    allowed,
    apply,
    axes_of,
    check,
    close,
    graph_of,
    operands_of,
    reduce_by,
    reductions_of,
    shaped,
    stretched,
    terms,
)
from tests.unit.lower.kernels.test_scalars import TARGETS, cases

NDArray = np.ndarray[Any, Any]


def shifted(x: NDArray) -> NDArray:
    """An array that begins one element behind the place of an array."""
    room = np.empty(x.size + 1, x.dtype)
    room[1:] = x.reshape(-1)
    return room[1:].reshape(x.shape)


LAYOUTS = (
    *(layout for layout in PLACES if layout is not odd),
    shifted,
)  # GPUs read no element across its own alignment
SOURCES = (*LAYOUTS, stretched)
LONG = ((70_001,), (3, 20_003), (20_003, 3), (40, 2000))


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_an_elementwise_command_wherever_its_operands_lie(target: Command) -> None:
    calls, checks = [], []
    start = TARGETS.index(target)  # shapes and layouts take turns, so that all meet within each dtype
    for turn, found in enumerate(cases(target), start):
        shape = SHAPES[turn % len(SHAPES)]
        case = shaped(found, shape)
        operands = [SOURCES[(turn + i) % len(SOURCES)](x) for i, x in enumerate(operands_of(case, shape))]
        given = [x.copy() for x in operands]
        like = [x for x in operands if x.dtype == case.output and (0 not in x.strides or x.size == 1)]
        other = LAYOUTS[turn // 2 % len(LAYOUTS)](np.full(shape, 1, case.output))
        out = like[-1] if like and turn % 3 == 0 else other  # some in place
        calls.append((graph_of(operands, partial(apply, case)), operands, [out]))
        checks.append((case, given, out))
    run_nests(calls)
    for case, given, out in checks:
        check(case, given, out)


def check_reductions(name: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    calls, checks = [], []
    for turn, (shape, reduced) in enumerate((s, axes) for s in shapes for axes in axes_of(s)):
        x = SOURCES[turn % len(SOURCES)](terms(name, shape, turn))
        commands = reductions_of(x)
        graph = graph_of([x], partial(reduce_by, commands, reduced))
        outputs = [LAYOUTS[turn // 2 % len(LAYOUTS)](np.full(s.shape, 1, s.dtype)) for s in graph.output_specs]
        calls.append((graph, [x], outputs))
        checks.append((commands, x, reduced, outputs))
    run_nests(calls)
    for commands, x, reduced, outputs in checks:
        for command, out in zip(commands, outputs, strict=True):
            with np.errstate(all="ignore"):
                wanted = np.asarray(reference[command_of(command)](x, axes=reduced))
            what = f"{command} of {x.dtype}{list(x.shape)} over {reduced}"
            close(out, wanted, allowed(command, x, reduced, wanted), what)


@pytest.mark.parametrize("name", REAL)
def test_reductions_over_all_choices_of_axes(name: str) -> None:
    check_reductions(name, ROWS)


@pytest.mark.parametrize("name", ["float32", "float64", "int64", "bool", "float16"])
def test_long_reductions(name: str) -> None:
    check_reductions(name, LONG)
