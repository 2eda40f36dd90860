"""The structural hash: the facts that it depends on, and that every process agrees."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnc.base.source import SourceLine
from nnc.errors import GraphError
from nnc.graph import Command, Graph, GraphBuilder, TensorSpec, same_params, structural_hash, structurally_equal
from nnc.graph.rules import Rules

SCRIPT = """
import numpy as np
import nnc.commands.shape
from nnc.graph import GraphBuilder, structural_hash
b = GraphBuilder()
x = b.input((4,), "bfloat16")
part = b.add("slice", x, start=(1,), limit=(3,), stride=(1,))
print(structural_hash(b.build(b.add("add", part, b.constant(np.ones(2), "bfloat16")))))
"""


def make(
    *,
    command: str = "add",
    shape: tuple[int, ...] = (4,),
    start: Any = 1,
    swap: bool = False,
    value: float = 1.0,
    name: str = "g",
) -> Graph:
    """A graph that differs with every argument; only `name` does not matter to the hash."""
    b = GraphBuilder(name)
    x, y = b.input(shape, "float32", name=name), b.input((2,), "float32")
    part = b.add("slice", x, start=(start,), limit=(start + 2,), stride=(1,), source=SourceLine(name, 1, name))
    total = b.add(command, *((y, part) if swap else (part, y)))
    return b.build(b.add("mul", total, b.constant([value, 2.0], "float32", name=name)))


def test_names_sources_attributes_and_identities_do_not_matter() -> None:
    a, b = make(name="a"), make(name="b").with_attrs(note=1)
    assert structural_hash(a) == structural_hash(b) and structurally_equal(a, b)
    assert len(structural_hash(a)) == 64


@pytest.mark.parametrize(
    "change", [{"command": "sub"}, {"shape": (5,)}, {"start": 0}, {"swap": True}, {"value": -1.0}], ids=str
)
def test_commands_specs_parameters_wiring_and_constants_matter(change: dict[str, Any]) -> None:
    assert structural_hash(make()) != structural_hash(make(**change))
    assert not structurally_equal(make(), make(**change))


def test_the_sign_of_zero_in_a_constant_matters() -> None:
    assert structural_hash(make(value=0.0)) != structural_hash(make(value=-0.0))


def test_the_order_of_outputs_matters() -> None:
    b = GraphBuilder()
    x, y = b.input((), "int8"), b.input((), "int8")
    assert structural_hash(b.build(x, y)) != structural_hash(b.build(y, x))


def test_sub_graphs_matter(call: Command) -> None:
    def outer(start: int) -> Graph:
        b = GraphBuilder()
        x, y = b.input((4,), "float32"), b.input((2,), "float32")
        return b.build(*b.add(call, x, y, graphs=(make(start=start),)))

    assert structural_hash(outer(1)) == structural_hash(outer(1)) != structural_hash(outer(2))
    assert structurally_equal(outer(1), outer(1)) and not structurally_equal(outer(1), outer(2))


def test_graphs_of_other_numbers_of_nodes_are_not_equal() -> None:
    b = GraphBuilder()
    once = b.add("neg", b.input((2,), "float32"))
    short, long = b.build(once), b.build(b.add("neg", once))
    assert not structurally_equal(short, long)
    assert not structurally_equal(long, short)


def test_parameters_of_equal_value_and_other_type_differ() -> None:
    assert same_params({"a": (1, "x")}, {"a": (1, "x")})
    for value in (True, 1.0, (1,), np.int32(1), "1", 1 + 0j):
        assert not same_params({"a": 1}, {"a": value}), value
    assert not same_params({"a": 0.0}, {"a": -0.0})
    assert same_params({"a": float("nan")}, {"a": float("nan")})
    assert not same_params({"a": 1}, {"b": 1})


def test_tuples_within_parameters_are_told_apart(new_command: Callable[..., Command]) -> None:
    new = new_command("test_nested", Rules(infer=lambda x, *, of: x))

    def digest(of: Any) -> str:
        b = GraphBuilder()
        return structural_hash(b.build(b.add(new, b.input((), "int8"), of=of)))

    values = [((1, 2), (3,)), ((1,), (2, 3)), (1, 2, 3), ((1, 2), (3.0,)), ((1, True), (3,)), ((1, 2), (np.int64(3),))]
    assert len({*map(digest, values)}) == len(values)
    assert digest(((0.0,),)) != digest(((-0.0,),))


def test_parameters_without_a_stable_form_are_compared_but_not_hashed(new_command: Callable[..., Command]) -> None:
    new = new_command("test_callback", Rules(infer=lambda x, *, function: x))

    def graph(function: Any) -> Graph:
        b = GraphBuilder()
        return b.build(b.add(new, b.input((), "int8"), function=function))

    assert structurally_equal(graph(print), graph(print)) and not structurally_equal(graph(print), graph(len))
    with pytest.raises(GraphError, match="parameter 'function' of a test_callback node has no stable form"):
        structural_hash(graph(print))


def test_processes_with_other_hash_seeds_agree() -> None:
    def digest(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", SCRIPT]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    scope: dict[str, Any] = {"print": lambda value: scope.setdefault("result", value)}
    exec(SCRIPT, scope)
    assert digest("1").strip() == digest("2").strip() == scope["result"]


def test_each_field_of_a_spec_matters() -> None:
    def graph(*specs: TensorSpec) -> Graph:
        b = GraphBuilder()
        return b.build(*[b.input(spec) for spec in specs])

    plain = TensorSpec((2, 3, 4, 1), "float32")
    others = [
        TensorSpec((2, 3, 4, 1), "int32"), TensorSpec((2, 3, 1, 4), "float32"), TensorSpec((2, 3, 4), "float32"),
        TensorSpec((2, 3, 4, 1), "float32", "blocked8"), TensorSpec((2, 3, 4, 1), "float32", "blocked16"),
    ]  # fmt: skip
    graphs = [graph(plain, spec) for spec in (plain, *others)]
    assert len({structural_hash(each) for each in graphs}) == len(graphs)
    for i, one in enumerate(graphs):
        assert [structurally_equal(one, other) for other in graphs] == [i == j for j in range(len(graphs))]
