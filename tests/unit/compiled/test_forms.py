"""Graphs are taken apart into a form and integers, and put together with others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.compiled.forms import opened, take_apart, with_integers
from nnc.graph import Graph, structurally_equal
from tests.fuzz.programs.sized import STEPS, SizedProgram, rows


def graph_of(fun: Any, n: int) -> Graph:
    return nnc.make_graph(fun)(rows(n))


def loop(x: Any) -> Any:
    return nnc.scan(lambda carry, row: (carry + row * x.shape[0], nnp.sum(carry)), nnp.zeros(16, np.float32), x)


FUNCTIONS: dict[str, Any] = {**{name: lambda x, f=f: f(nnp, x) for name, f in STEPS.items()}, "loop": loop}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_graph_with_its_own_integers_is_the_same_graph(name: str) -> None:
    graph = graph_of(FUNCTIONS[name], 33)
    form = take_apart(graph)
    numbers = iter(form.integers)
    assert structurally_equal(with_integers(graph, lambda: next(numbers)), graph)
    assert next(numbers, None) is None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_graph_of_another_size_is_the_form_with_other_integers(name: str) -> None:
    one, other = graph_of(FUNCTIONS[name], 34), graph_of(FUNCTIONS[name], 40)
    form, wanted = take_apart(one), take_apart(other)
    assert form.parts == wanted.parts
    numbers = iter(wanted.integers)
    made = with_integers(one, lambda: next(numbers))
    if all(x.tobytes() == y.tobytes() for x, y in zip(form.constants, wanted.constants, strict=True)):
        assert structurally_equal(made, other)


def test_forms_tell_commands_wiring_and_parameters_apart() -> None:
    functions = [
        lambda x: x - x[0], lambda x: x[0] - x, lambda x: x + x[0], lambda x: nnp.sum(x, axis=0), lambda x: nnp.max(x, axis=0),
        lambda x: nnp.cumsum(x, axis=0), lambda x: x.astype(np.float64), lambda x: nnp.sum(x, axis=0, keepdims=True),
    ]  # fmt: skip
    forms = [take_apart(graph_of(fun, 5)).parts for fun in functions]
    assert len(set(forms)) == len(forms)


def test_a_branch_on_the_size_gives_graphs_of_two_forms() -> None:
    run = SizedProgram(("branch",))
    below, above = (take_apart(graph_of(lambda x: run(nnp, x), n)).parts for n in (17, 33))
    assert below != above


def test_constants_become_inputs_where_they_are_read() -> None:
    graph = graph_of(lambda x: nnp.sum(x / np.float32(x.shape[0])) / np.float32(16), 8)
    form = take_apart(graph)
    place = next(i for i, value in enumerate(form.constants) if value == 8)
    found = opened(graph, {place: None})
    assert found is not None and len(found.inputs) == len(graph.inputs) + 1
    x = rows(8)
    assert np.asarray(found(x, np.float32(8))) == np.asarray(graph(x))
    assert np.asarray(found(x, np.float32(4))) == pytest.approx(2 * float(graph(x)), rel=1e-6)


def test_constants_of_sub_graphs_stay() -> None:
    graph = graph_of(loop, 8)
    form = take_apart(graph)
    inner = next(i for i, value in enumerate(form.constants) if value == 8)
    assert opened(graph, {inner: None}) is None
