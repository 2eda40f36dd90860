"""The greatest elements of windows and their places are found in one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.lower.phases import SIMPLIFYING, names_of
from tests.unit.lower.passes.tools import check_same_bits, names, run

X = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)


def _loss(x: Any) -> Any:
    return nnp.sum(nn.max_pool(nnp.sin(x), 2) ** 2)


def test_a_pooling_whose_gradient_is_wanted_reads_its_operand_once() -> None:
    graph = run(nnc.make_graph(nnc.grad(_loss))(X), *names_of(SIMPLIFYING))
    joined = run(graph, "join_pools")
    assert {"max_pool", "max_pool_places"} <= set(names(graph))
    assert names(joined).count("max_pool_both") == 1 and not {"max_pool", "max_pool_places"} & set(names(joined))
    check_same_bits(graph, joined, [X])
    text = nnc.compile(nnc.grad(_loss)).lower(X).compile().as_text()
    assert "max_pool_both" in text


def test_poolings_of_other_windows_and_without_a_gradient_stay() -> None:
    forward = nnc.make_graph(_loss)(X)

    def other(x: Any) -> Any:
        y = nnp.sin(x)
        return nn.max_pool(y, 2), nnc.jvp(lambda y: nn.max_pool(y, 4), (y,), (y,))[1]

    for graph in (forward, nnc.make_graph(other)(X)):
        before = run(graph, *names_of(SIMPLIFYING))
        assert names(run(before, "join_pools")) == names(before)


def test_places_that_are_found_much_later_stay_apart() -> None:
    graph = run(nnc.make_graph(nnc.grad(_loss))(X), *names_of(SIMPLIFYING))
    (places,) = (node for node in graph.nodes if node.command.name == "max_pool_places")
    nodes = [node for node in graph.nodes if node is not places]
    at = next(i for i, node in enumerate(nodes) if places.outputs[0] in node.inputs)
    late = graph.update(nodes=(*nodes[:at], places, *nodes[at:]))
    assert names(late).index("max_pool_places") > names(late).index("max_pool") + 1
    assert names(run(late, "join_pools")) == names(late)
