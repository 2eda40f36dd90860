"""Blueprints give the steps that lowering gives, at every size for which they say that they are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.base.options import Options
from nnc.compiled.blueprint import Blueprint, Values, same_steps
from nnc.compiled.forms import opened, take_apart
from nnc.compiled.pipeline import plan
from nnc.graph import Graph
from nnc.lower.plan.stages import Bound
from tests.fuzz.programs.sized import STEPS

WEIGHTS = {"w": np.ones((16, 16), np.float32), "v": np.ones((16, 4), np.float32), "b": np.zeros(16, np.float32)}


def train(params: Any, x: Any) -> Any:
    def loss(params: Any) -> Any:
        h = nn.relu(nn.layer_norm(x @ params["w"] + params["b"], np.ones(16, np.float32), np.zeros(16, np.float32)))
        return nnp.mean(nnp.sum(nn.log_softmax(h @ params["v"]), axis=-1))

    value, gradient = nnc.value_and_grad(loss)(params)
    return value, nnc.tree.map(lambda p, g: p - 0.1 * g, params, gradient)


def attention(x: Any) -> Any:
    q = nnp.reshape(x, (2, -1, 2, 8))
    return nn.dot_product_attention(q, q, q, is_causal=True)


def loop(x: Any) -> Any:
    return nnc.scan(lambda carry, row: (carry * 0.5 + row, carry), nnp.zeros(16, np.float32), x)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    **{name: lambda x, f=f: f(nnp, x) for name, f in STEPS.items()},
    "train": lambda x: train(WEIGHTS, x),
    "attention layer": attention,
    "loop": loop,
    "derivative of a loop": lambda x: nnc.grad(lambda x: nnp.sum(loop(x)[0]))(x),
    "sort": lambda x: nnp.sort(x, axis=0),
    "one hot": lambda x: nn.one_hot(nnp.argmax(x, axis=0), 5),
    "two sums": lambda x: (nnp.sum(x, axis=0), nnp.sum(x)),
}


def lowered(graph: Graph) -> Bound:
    return plan(graph, Options(sized=True)).bound


def graphs(fun: Callable[..., Any], sizes: Sequence[int]) -> dict[int, tuple[Graph, list[int]]]:
    """The graphs of some sizes, without constants that differ, and the integers of their forms."""
    found = {n: nnc.make_graph(fun)(np.zeros((n, 16), np.float32)) for n in sizes}
    forms = {n: take_apart(graph) for n, graph in found.items()}
    assert len({form.parts for form in forms.values()}) == 1
    rows = [[value.tobytes() for value in form.constants] for form in forms.values()]
    places = {i: None for i, column in enumerate(zip(*rows, strict=True)) if len(set(column)) > 1}
    result = {}
    for n, graph in found.items():
        opened_graph = opened(graph, places)
        assert opened_graph is not None
        result[n] = opened_graph, forms[n].integers
    return result


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_blueprint_gives_the_steps_of_lowering(name: str) -> None:
    sizes = (34, 40, 46, 52, 58)
    known = graphs(FUNCTIONS[name], sizes)
    blueprint = Blueprint.of(known[40][0], [known[40][1], known[34][1]], lowered)
    served = 0
    for n in sizes:
        values = blueprint.at(known[n][1])
        if values is not None:
            served += 1
            assert same_steps(Values(values).bound(blueprint.bound), lowered(known[n][0])), n
    assert served >= 4


def test_a_blueprint_serves_half_its_size_to_twice() -> None:
    fun = FUNCTIONS["tanh"]
    known = graphs(fun, (40, 48, 19, 20, 80, 81))
    blueprint = Blueprint.of(known[40][0], [known[40][1], known[48][1]], lowered)
    assert [blueprint.at(integers) is not None for _, integers in known.values()] == [
        True,
        True,
        False,
        True,
        True,
        False,
    ]


def test_two_axes_are_told_apart() -> None:
    def graph_of(batch: int, length: int) -> tuple[Graph, list[int]]:
        graph = nnc.make_graph(lambda x: nnp.reshape(nnp.tanh(x), (-1, 4)))(np.zeros((batch, length, 4), np.float32))
        return graph, take_apart(graph).integers

    known = {pair: graph_of(*pair) for pair in ((6, 20), (8, 31), (5, 27), (9, 22))}
    blueprint = Blueprint.of(known[6, 20][0], [integers for _, integers in list(known.values())[:3]], lowered)
    values = blueprint.at(known[9, 22][1])
    assert values is not None and same_steps(Values(values).bound(blueprint.bound), lowered(known[9, 22][0]))


def test_a_blueprint_does_not_serve_integers_that_it_does_not_expect() -> None:
    """Halves rounded down look like halves as long as sizes are even."""
    fun = FUNCTIONS["twice"]
    known = graphs(fun, (36, 40, 44))
    odd = take_apart(nnc.make_graph(fun)(np.zeros((41, 16), np.float32))).integers
    blueprint = Blueprint.of(known[40][0], [known[40][1], known[36][1]], lowered)
    assert blueprint.at(known[44][1]) is not None and blueprint.at(odd) is None


def test_a_function_that_asks_a_library_about_its_sizes_has_a_blueprint_for_these_alone() -> None:
    known = graphs(lambda x: nn.conv(x[None, None], np.ones((16, 1, 3, 3), np.float32), padding=1), (34, 40))
    blueprint = Blueprint.of(known[40][0], [known[40][1], known[34][1]], lowered)
    assert blueprint.at(known[40][1]) is not None and blueprint.at(known[34][1]) is None
