"""Staging: the nodes that a trace records, and the objects that it keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import TraceError
from nnc.graph import TensorSpec
from nnc.trace.core.staging import StagingTrace, stage

SPEC = TensorSpec((3,), np.dtype("float64"))


def test_equal_scalars_are_one_constant_and_arrays_are_hidden_inputs_by_identity() -> None:
    a, b = nnc.asarray(np.ones(3)), nnc.asarray(np.ones(3))
    staged = stage(lambda x: [x * 2.0 + 2.0 + a + a + b], [SPEC])
    assert len(staged.captured) == 2 and staged.num_explicit == 1
    scalars = [v for v in staged.graph.constants.values() if v.shape == ()]
    assert len(scalars) == 1


def test_constants_of_other_dtypes_and_signed_zeros_are_kept_apart() -> None:
    staged = stage(lambda x: [nnp.copysign(x, 0.0), nnp.copysign(x, -0.0)], [SPEC])
    a, b = staged.graph.evaluate([np.ones(3), *staged.captured])
    assert float(a[0]) == 1 and float(b[0]) == -1


def test_unread_nodes_can_be_dropped_with_their_captured_values() -> None:
    a, b = nnc.asarray(np.ones(3)), nnc.asarray(np.full(3, 2.0))
    staged = stage(lambda x, y: (nnp.sin(x * a), [x * b])[1], [SPEC, SPEC])
    lean = staged.without_unread()
    assert len(staged.captured) == 2 and len(lean.captured) == 1 and lean.num_explicit == 2
    assert [node.command.name for node in lean.graph.nodes] == ["mul"]
    assert np.asarray(lean.graph.evaluate([np.ones(3), np.ones(3), *lean.captured])[0]).tolist() == [2.0] * 3


def test_a_trace_that_fails_is_over_and_leaves_the_next_one_alone() -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept.append(x)
        raise KeyError("inside")

    with pytest.raises(KeyError):
        stage(f, [SPEC])
    with pytest.raises(TraceError, match="ended"):
        kept[0] + 1
    assert type(nnp.ones(3) + 1) is nnc.Array


def test_later_traces_have_higher_levels() -> None:
    first, second = StagingTrace("a"), StagingTrace("b")
    assert second.level > first.level > 0


def test_inputs_and_constants_may_be_outputs_and_twice() -> None:
    staged = stage(lambda x: [x, x, 3.0, np.ones(2)], [SPEC])
    x = np.arange(3.0)
    a, b, c, d = staged.graph.evaluate([x, *staged.captured])
    assert a is x and b is x and c == 3 and np.asarray(d).tolist() == [1, 1]


def test_an_operand_is_broadcast_once_to_each_shape() -> None:
    def f(x: Any, y: Any) -> list[Any]:
        return [x * y, x + y, (x[None] - y) * 2.0, x * 2.0, x + 2.0]

    graph = stage(f, [SPEC, TensorSpec((), SPEC.dtype)]).graph
    shapes = [(node.inputs[0], node.outputs[0].shape) for node in graph.nodes if node.command.name == "broadcast_to"]
    assert len({*shapes}) == 4  # the operand and the number, each to two shapes


def test_numbers_keep_their_sign_and_their_type_when_they_are_converted() -> None:
    for number in (0.0, -0.0, complex(-0.0, 1.0), complex(0.0, 1.0)):
        graph = stage(lambda x, number=number: [x * number], [SPEC]).graph
        (constant,) = graph.constants.values()
        assert repr(constant.item()) == repr(type(constant.item())(number))
    with pytest.raises(nnc.errors.DTypeError):
        stage(lambda x: [x + 300], [TensorSpec((3,), np.dtype("int8"))])
