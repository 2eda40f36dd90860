"""Transposition of linear graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import UnsupportedError
from nnc.graph import TensorSpec
from nnc.trace.core.backward import push_graph, transpose_graph
from nnc.trace.core.staging import stage

SPEC = TensorSpec((3,), np.dtype("float64"))
X = np.array([0.3, -1.2, 0.7])


def test_contributions_of_several_readers_and_outputs_add_up() -> None:
    graph = stage(lambda x: [x * 2, x, x + x[::-1]], [SPEC]).graph
    (found,) = transpose_graph(graph, 1, [], [nnc.asarray(X)] * 3)
    assert np.allclose(np.asarray(found), 2 * X + X + X + X[::-1])


def test_inputs_without_an_effect_have_no_cotangent() -> None:
    graph = stage(lambda x, y: [x * 2], [SPEC, SPEC]).graph
    first, second = transpose_graph(graph, 2, [], [nnc.asarray(X)])
    assert np.allclose(np.asarray(first), 2 * X) and second is None
    assert transpose_graph(graph, 2, [], [None]) == [None, None]


def test_nodes_of_values_alone_are_computed_not_transposed() -> None:
    graph = stage(lambda x, w: [x * nnp.sin(w) * nnp.exp(w)], [SPEC, SPEC]).graph
    (found,) = transpose_graph(graph, 1, [nnc.asarray(X)], [nnc.asarray(np.ones(3))])
    assert np.allclose(np.asarray(found), np.sin(X) * np.exp(X))


def test_pushing_and_pulling_are_adjoint() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((4, 3))

    def linear(x: Any) -> Any:
        y = a @ x
        return [nnp.cumsum(y), nnp.concatenate([x[1:], y * 3])[::2], nnp.sum(x) * X]

    staged = stage(linear, [SPEC])
    t = nnc.asarray(rng.standard_normal(3))
    pushed = push_graph(staged.graph, [t, *staged.captured])
    cts = [nnc.asarray(rng.standard_normal(y.shape)) for y in pushed]
    (pulled,) = transpose_graph(staged.graph, 1, staged.captured, cts)
    left = sum(float(np.sum(np.asarray(c) * np.asarray(y))) for c, y in zip(cts, pushed, strict=True))
    assert np.isclose(left, float(np.asarray(pulled) @ np.asarray(t)))


@pytest.mark.parametrize("bad", [lambda x: nnp.sin(x), lambda x: x * x, lambda x: x / x, lambda x: nnp.maximum(x, 0)])
def test_a_graph_that_is_not_linear_is_refused_with_its_line(bad: Any) -> None:
    with pytest.raises(UnsupportedError, match="test_backward"):
        transpose_graph(stage(lambda x: [bad(x)], [SPEC]).graph, 1, [], [nnc.asarray(X)])
