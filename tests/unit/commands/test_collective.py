"""The commands of collectives: shape rules, references, batching. Derivatives: tests/unit/trace/core/test_collectives.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnc.commands import collective
from nnc.errors import BackendError, DTypeError, ShapeError
from nnc.graph import Command, TensorSpec, infer_specs, reference
from nnc.trace.core.batching import run_batched

SIZE = 3
PARAMS: dict[str, Any] = {"size": SIZE, "axis_name": "i"}
COMMANDS: list[tuple[Command, dict[str, Any]]] = [
    (collective.psum, {}), (collective.pvary, {}), (collective.pmax, {}), (collective.pmin, {}), (collective.all_gather, {}),
    (collective.all_gather_same, {}),
    (collective.psum_scatter, {}), (collective.all_to_all, {}), (collective.ppermute, {"perm": ((0, 1), (1, 2))}),
]  # fmt: skip
X = np.arange(12.0).reshape(SIZE, 4) - 5
each_command = pytest.mark.parametrize(("command", "more"), COMMANDS, ids=[c.name for c, _ in COMMANDS])


def at(command: Command, place: int, more: dict[str, Any], x: Any = X) -> Any:
    return reference[command](x, np.int32(place), **PARAMS, **more)


@each_command
def test_the_shape_rule_agrees_with_the_reference(command: Command, more: dict[str, Any]) -> None:
    for x in (X, X.astype(np.float16), X.astype(np.int32)):
        (spec,) = infer_specs(command, (TensorSpec(x.shape, x.dtype), collective.INDEX), {**PARAMS, **more})
        assert spec == TensorSpec(np.shape(at(command, 1, more, x)), at(command, 1, more, x).dtype)


@each_command
@pytest.mark.parametrize("mapped", [False, True], ids=["one value", "a value for each place"])
def test_the_batching_rule_gives_each_place_the_result_of_the_reference(
    command: Command, more: dict[str, Any], mapped: bool
) -> None:
    operand = np.stack([X] * SIZE) if mapped else X
    outputs, batched = run_batched(
        lambda x, index: [command(x, index, **PARAMS, **more)], SIZE, [operand, np.arange(SIZE, dtype=np.int32)], [mapped, True]
    )  # fmt: skip
    for place in range(SIZE):
        found = np.asarray(outputs[0])[place] if batched[0] else np.asarray(outputs[0])
        np.testing.assert_array_equal(found, at(command, place, more))


@each_command
def test_another_axis_is_mapped_over_operands_alone(command: Command, more: dict[str, Any]) -> None:
    rows = np.stack([X, X * 2, X**2, -X])
    outputs, batched = run_batched(lambda x: [command(x, np.int32(1), **PARAMS, **more)], 4, [rows], [True])
    assert batched == [True]
    for got, x in zip(np.asarray(outputs[0]), rows, strict=True):
        np.testing.assert_array_equal(got, at(command, 1, more, x))


def test_operands_that_do_not_fit_are_refused() -> None:
    index = collective.INDEX
    with pytest.raises(DTypeError, match="a number"):
        infer_specs(collective.psum, (TensorSpec((2,), np.dtype(bool)), index), PARAMS)
    for command in (collective.psum_scatter, collective.all_to_all):
        with pytest.raises(ShapeError, match="one element for each of the 3 places"):
            infer_specs(command, (TensorSpec((2,), np.dtype("float32")), index), PARAMS)
    with pytest.raises(DTypeError, match="the number of the place"):
        infer_specs(collective.pvary, (index, TensorSpec((), np.dtype("int64"))), PARAMS)
    with pytest.raises(ShapeError, match="the number of the place"):
        infer_specs(collective.pvary, (index, TensorSpec((2,), np.dtype("int32"))), PARAMS)


def test_a_named_axis_is_mapped_as_a_whole() -> None:
    with pytest.raises(ShapeError, match="3 places was mapped as one of 2 rows"):
        run_batched(
            lambda x, index: [collective.psum(x, index, **PARAMS)], 2, [X[:2], np.arange(2, dtype=np.int32)], [True, True]
        )  # fmt: skip


@each_command
def test_a_failure_of_the_library_of_processes_is_worded(command: Command, more: dict[str, Any]) -> None:
    if command is not collective.pvary:
        with pytest.raises(BackendError, match="the library that joins the values of processes reported a failure"):
            reference[command](np.ones((3, 3)), np.int32(1), **PARAMS, **more, stride=2)
