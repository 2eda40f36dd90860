"""Values that a linear map reads stay as they were when the point was taken, even if their memory is written to afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.array.array import settled

ONES = np.ones(3, np.float32)


def captured(x: Any, buffer: Any) -> Any:
    return nnp.sum(x * buffer)


FORMS: dict[str, Any] = {
    "captured": lambda buffer: nnc.vjp(lambda x: captured(x, buffer), ONES),
    "captured array": lambda buffer: (lambda a: nnc.vjp(lambda x: captured(x, a), ONES))(nnc.asarray(buffer)),
    "view": lambda buffer: nnc.vjp(lambda x: captured(x, buffer[::-1]), ONES),
    "given": lambda buffer: nnc.vjp(lambda b: nnp.sum(b * b) * 0.5, buffer),
    "checkpoint": lambda buffer: nnc.vjp(nnc.checkpoint(lambda x: captured(x, buffer)), ONES),
    "compiled": lambda buffer: nnc.vjp(nnc.compile(lambda x: captured(x, buffer)), ONES),
    "compiled array": lambda buffer: (lambda a: nnc.vjp(nnc.compile(lambda x: captured(x, a)), ONES))(
        nnc.asarray(buffer)
    ),
    "compiled view": lambda buffer: nnc.vjp(nnc.compile(lambda x: captured(x, buffer[::-1])), ONES),
    "compiled given": lambda buffer: nnc.vjp(nnc.compile(lambda b: nnp.sum(b * b) * 0.5), buffer),
    "compiled within": lambda buffer: nnc.vjp(lambda x: nnc.compile(lambda y: captured(y, buffer))(x) * 1.0, ONES),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_pullback_reads_the_values_of_its_point(form: str) -> None:
    buffer = np.full(3, 2.0, np.float32)
    _, pull = FORMS[form](buffer)
    buffer[:] = 100
    np.testing.assert_array_equal(np.asarray(pull(np.float32(1))).ravel(), [2, 2, 2])


def test_a_linear_map_reads_the_values_of_its_point() -> None:
    buffer = np.full(3, 2.0, np.float32)
    _, push = nnc.linearize(lambda b: nnp.sum(b * b), buffer)
    buffer[:] = 100
    assert float(push(ONES)) == 12


def test_results_that_nobody_else_sees_are_not_copied() -> None:
    x = nnc.asarray(ONES) * 2
    assert settled(x) is x
    assert settled(nnc.asarray(ONES)) is not ONES


@pytest.mark.parametrize("make", [lambda buffer: buffer, nnc.asarray], ids=["numpy", "array"])
def test_a_dynamic_graph_keeps_the_values_that_a_command_read(make: Any) -> None:
    buffer = np.full(3, 2.0, np.float32)
    operand = make(buffer)
    g = nnc.DynamicGraph()
    x = g.variable(ONES)
    y = captured(x, operand)
    buffer[:] = 100
    g.backward(y)
    np.testing.assert_array_equal(np.asarray(x.grad), [2, 2, 2])
    assert float(captured(x, operand)) == 300  # no result of before
