"""Passes run in an order that gives each the facts that it requires."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest

import nnc
from nnc.base.options import Options
from nnc.commands.control import PRINTED
from nnc.errors import RegistryError
from nnc.graph import Graph, find_pass, register_pass, run_passes, to_text
from nnc.graph.passes import Fact, PhaseName
from nnc.lower.phases import BEFORE_FUSION, FUSE, JOIN, PHASES, SIMPLIFYING, TRACED, facts_after, names_of, run_phases
from tests.golden.programs import Program, lstm, resnet_block, transformer, while_loop

NAMES = names_of(PHASES)
PLANNED = {Fact.NO_DEAD, Fact.ORDERED, Fact.NO_CALLS, Fact.KERNELS}  # facts that the memory plan relies on


def test_passes_run_in_an_order_that_gives_each_the_facts_that_it_requires() -> None:
    assert facts_after(NAMES) >= PLANNED


def test_every_fact_is_ensured_and_required() -> None:
    passes = [find_pass(name) for name in NAMES]
    assert TRACED.union(*(each.ensures for each in passes)) == {*Fact}
    assert PLANNED.union(*(each.requires for each in passes)) == {*Fact}


@pytest.mark.parametrize(
    ("name", "fact"),
    [(name, fact) for name in dict.fromkeys(NAMES) for fact in Fact if fact in find_pass(name).requires - TRACED],
)
def test_an_order_is_refused_in_which_no_pass_ensures_a_fact_that_is_required(name: str, fact: Fact) -> None:
    needless = [each for each in NAMES[: NAMES.index(name)] if fact in find_pass(each).ensures]
    assert needless
    with pytest.raises(RegistryError, match=f"the pass requires {fact}: .* (ensures|invalidates) it"):
        facts_after([each for each in NAMES[: NAMES.index(name) + 1] if each not in needless])


def same(graph: Graph, name: str) -> bool:
    """Whether a pass finds nothing to do."""
    return to_text(find_pass(name).function(graph, Options()), sources=False) == to_text(graph, sources=False)


# Facts that a graph shows; MERGED, COMBINED, LAYOUT, ORDERED, LOW_PEAK and PACKED tell of the way to it.
VISIBLE: dict[Fact, Callable[[Graph], bool]] = {
    Fact.COMMANDS: lambda graph: not any(node.command in PRINTED for node in graph.walk()),
    Fact.INLINED: lambda graph: same(graph, "inline_calls"),
    Fact.NO_CALLS: lambda graph: same(graph, "inline_barriers"),
    Fact.FOLDED: lambda graph: same(graph, "fold"),
    Fact.SIMPLIFIED: lambda graph: same(graph, "simplify"),
    Fact.NO_DEAD: lambda graph: same(graph, "dce"),
    Fact.NO_INVARIANTS: lambda graph: same(graph, "licm"),
    Fact.KERNELS: lambda graph: find_pass("fuse").function(graph, Options()).num_nodes == graph.num_nodes,
}


@pytest.mark.parametrize("program", [lstm, resnet_block, transformer, while_loop])
def test_facts_hold_from_the_pass_that_ensures_them_until_one_invalidates_them(program: Callable[[], Program]) -> None:
    made = program()
    graph, holds = nnc.compile(made.fun).lower(*made.arguments).graph, TRACED
    for name in NAMES:
        step = find_pass(name)
        graph, holds = run_passes(graph, [name], Options()), holds - step.invalidates | step.ensures
        assert not [fact for fact in holds & VISIBLE.keys() if not VISIBLE[fact](graph)], name


def test_an_order_is_refused_that_puts_a_pass_behind_one_that_invalidates_its_fact() -> None:
    for name in ("combine", "simplify", "one_hot"):
        with pytest.raises(
            RegistryError, match=f"{name}: the pass requires Fact.COMMANDS.*pass 'prefuse' invalidates it"
        ):
            facts_after([*names_of(BEFORE_FUSION), name])
    with pytest.raises(RegistryError, match="cse: the pass requires Fact.BARRIERS"):
        facts_after([*names_of(SIMPLIFYING), "cse"])
    with pytest.raises(RegistryError, match="epilogue: the pass requires Fact.KERNELS"):
        facts_after([*names_of((*BEFORE_FUSION, FUSE)), "rematerialize_in_consumers", "epilogue"])


def test_the_runner_refuses_a_phase_before_it_runs_any() -> None:
    graph = nnc.make_graph(lambda x: x + 1)(np.ones(2))
    with pytest.raises(RegistryError, match="epilogue: the pass requires Fact.KERNELS"):
        run_phases(graph, (*BEFORE_FUSION, JOIN), Options())
    done = run_phases(graph, PHASES, Options())
    assert tuple(record.name for record in done.attrs["passes"]) == NAMES


def test_a_phase_without_a_pass_is_the_rest_of_it() -> None:
    assert JOIN.without("epilogue").passes == JOIN.passes[1:]


def test_passes_can_be_added_to_each_phase_by_its_name() -> None:
    assert tuple(phase.name for phase in PHASES) == get_args(PhaseName)


@pytest.mark.usefixtures("own_registries")
def test_an_added_pass_has_its_place_among_the_facts() -> None:
    register_pass("test_late", phase="join", requires=[Fact.BARRIERS])(lambda graph, options: graph)
    graph = nnc.make_graph(lambda x: x + 1)(np.ones(2))
    with pytest.raises(
        RegistryError, match="test_late: the pass requires Fact.BARRIERS(.|\n)*'inline_barriers' invalidates"
    ):
        run_phases(graph, (JOIN,), Options())
    run_phases(graph, BEFORE_FUSION, Options())


@pytest.mark.usefixtures("own_registries")
def test_an_added_pass_runs_at_the_end_of_its_phase() -> None:
    before = names_of(PHASES)
    register_pass("test_last", phase="rewrite")(lambda graph, options: graph)
    register_pass("test_unasked")(lambda graph, options: graph)
    place = before.index("rematerialize_residuals") + 1
    assert names_of(PHASES) == (*before[:place], "test_last", *before[place:])
