"""The pass registry and the runner of pipelines."""

from __future__ import annotations

from typing import Any

import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentTypeError, GraphError, RegistryError
from nnc.graph import Graph, PassRecord, from_json, register_pass, run_passes, to_json
from nnc.graph.passes import Fact, added_passes

pytestmark = pytest.mark.usefixtures("own_registries")


@pytest.fixture
def passes() -> None:
    """A pass that counts nodes, one that needs the count, and one that drops a node."""

    @register_pass("count", provides=["count"])
    def count(graph: Graph, options: Any) -> Graph:
        return graph.with_attrs(count=len(graph.nodes))

    @register_pass("use", needs=["count"], provides=["half"])
    def use(graph: Graph, options: Any) -> Graph:
        return graph.with_attrs(half=graph.attrs["count"] // 2, options=options)

    @register_pass("drop", preserves=["note"])
    def drop(graph: Graph, options: Any) -> Graph:
        return graph.update(nodes=graph.nodes[:-1], outputs=graph.nodes[-1].inputs[:1])


def test_passes_run_in_order_and_receive_the_options(passes: None, squares: Graph) -> None:
    result = run_passes(squares, ["count", "use"], {"level": 2})
    assert (result.attrs["count"], result.attrs["half"], result.attrs["options"]) == (3, 1, {"level": 2})
    assert result.nodes == squares.nodes


def test_each_pass_is_logged_with_time_and_node_counts(passes: None, squares: Graph) -> None:
    result = run_passes(run_passes(squares, ["count"]), ["drop"])
    first, second = result.attrs["passes"]
    assert (first.name, first.nodes_before, first.nodes_after) == ("count", 3, 3)
    assert (second.name, second.nodes_before, second.nodes_after) == ("drop", 3, 2)
    assert first.seconds >= 0 and str(second).startswith("drop: 3 -> 2 nodes in ")
    assert from_json(to_json(result)).attrs["passes"] == (first, second)
    assert isinstance(first, PassRecord)


def test_a_pass_is_asked_where_a_command_stands_that_it_concerns(passes: None, squares: Graph) -> None:
    asked: list[int] = []

    @register_pass("look", concerns=["mul"])
    def look(graph: Graph, options: Any) -> Graph:
        asked.append(graph.num_nodes)
        return graph

    names = {node.command.name for node in squares.nodes}
    assert "mul" in names
    run_passes(squares, ["look"])
    inside = nnc.make_graph(lambda x: nnc.cond(True, lambda y: y * y, lambda y: y, x))(nnp.ones(2))
    assert "mul" not in {node.command.name for node in inside.nodes}
    run_passes(inside, ["look"])
    without = nnc.make_graph(lambda x: x + x)(nnp.ones(2))
    result = run_passes(without, ["look", "count"])
    assert asked == [3, inside.num_nodes]
    assert [record.name for record in result.attrs["passes"]] == ["look", "count"]


def test_a_pass_against_dead_nodes_is_asked_again_only_where_others_changed_the_graph(
    passes: None, squares: Graph
) -> None:
    asked: list[int] = []

    @register_pass("sweep", ensures=[Fact.NO_DEAD])
    def sweep(graph: Graph, options: Any) -> Graph:
        asked.append(graph.num_nodes)
        return graph

    @register_pass("shorten")
    def shorten(graph: Graph, options: Any) -> Graph:
        return graph.update(nodes=graph.nodes[:-1], outputs=graph.nodes[0].outputs)

    result = run_passes(squares, ["sweep", "count", "sweep", "shorten", "sweep", "sweep"])
    assert asked == [3, 2]
    assert [record.name for record in result.attrs["passes"]].count("sweep") == 4


def test_notes_for_the_next_pass_are_no_part_of_the_stored_form(squares: Graph) -> None:
    noted = squares.with_attrs(_note=object(), lasting=1)
    assert from_json(to_json(noted)).attrs == {"lasting": 1}


def test_a_missing_attribute_names_the_passes_that_provide_it(passes: None, squares: Graph) -> None:
    with pytest.raises(GraphError, match="use: the pass needs the attribute 'count'(.|\n)*Fix: run 'count' before it"):
        run_passes(squares, ["use"])
    register_pass("lonely", needs=["test_nothing"])(lambda graph, options: graph)
    with pytest.raises(GraphError, match="no registered pass provides it"):
        run_passes(squares, ["lonely"])


def test_attributes_are_lost_with_the_nodes_they_described_unless_they_are_preserved(
    passes: None, squares: Graph
) -> None:
    result = run_passes(squares.with_attrs(note="kept", other="lost"), ["count", "drop"])
    assert {name for name in result.attrs if name != "passes"} == {"note"}
    with pytest.raises(GraphError, match=r"does not have \(pass 'drop' changed the nodes that it described\)"):
        run_passes(squares, ["count", "drop", "use"])
    assert run_passes(squares, ["count", "drop", "count", "use"]).attrs["half"] == 1


def test_attributes_that_a_pass_computes_anew_stay_though_it_changes_nodes(passes: None, squares: Graph) -> None:
    @register_pass("recount", provides=["count"])
    def recount(graph: Graph, options: Any) -> Graph:
        return graph.update(nodes=graph.nodes[:-1], outputs=graph.nodes[-1].inputs[:1], attrs={"count": 2, "fresh": 5})

    result = run_passes(squares, ["count", "recount", "use"])
    assert (result.attrs["half"], result.attrs["fresh"]) == (1, 5)


def test_a_pass_must_provide_the_attributes_it_promises(squares: Graph) -> None:
    register_pass("liar", provides=["test_truth"])(lambda graph, options: graph)
    with pytest.raises(GraphError, match="liar: the pass did not provide the attribute 'test_truth'"):
        run_passes(squares, ["liar"])


def test_a_pass_that_breaks_the_graph_is_named_unless_checks_are_off(squares: Graph) -> None:
    register_pass("breaker")(lambda graph, options: graph.update(nodes=graph.nodes[1:]))
    with pytest.raises(GraphError, match="(.|\n)*while running pass 'breaker'"):
        run_passes(squares, ["breaker"])
    assert len(run_passes(squares, ["breaker"], verify=False).nodes) == 2


def test_a_graph_that_is_broken_before_the_first_pass_blames_no_pass(passes: None, squares: Graph) -> None:
    with pytest.raises(GraphError) as caught:
        run_passes(squares.update(nodes=squares.nodes[1:]), ["count"])
    assert "while running pass" not in str(caught.value)


def test_a_pass_that_returns_no_graph_is_named(squares: Graph) -> None:
    register_pass("forgetful")(lambda graph, options: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(ArgumentTypeError, match="forgetful: the pass returned NoneType, not a graph"):
        run_passes(squares, ["forgetful"])


def test_unknown_passes_and_second_registrations_are_refused_before_anything_runs(passes: None, squares: Graph) -> None:
    with pytest.raises(RegistryError, match="no pass 'cuont' is registered; there are .*count.*drop.*use"):
        run_passes(squares, ["count", "cuont"])
    with pytest.raises(RegistryError, match=r"pass 'count' exists already: \S*test_passes registers it"):
        register_pass("count")


def test_a_pass_that_asks_for_an_unknown_phase_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(RegistryError, match="phase 'rewriting', which lowering does not have(.|\n)*simplify, rewrite,"):
        register_pass("late", phase="rewriting")  # type: ignore[arg-type]


def test_passes_of_other_packages_are_found_by_their_phase_in_the_order_of_registration() -> None:
    register_pass("own")(lambda graph, options: graph)
    for name, phase in (("second", "rewrite"), ("first", "simplify"), ("third", "rewrite")):
        register_pass(name, phase=phase)(lambda graph, options: graph)  # type: ignore[arg-type]
    assert added_passes("rewrite") == ("second", "third") and added_passes("simplify") == ("first",)
    assert added_passes("order") == () and added_passes() == ("second", "first", "third")


def test_a_record_tells_the_milliseconds_of_its_pass() -> None:
    assert str(PassRecord("dce", 0.012344, 7, 3)) == "dce: 7 -> 3 nodes in 12.34 ms"
    assert str(PassRecord("dce", 12.3, 7, 3)) == "dce: 7 -> 3 nodes in 12300.00 ms"
