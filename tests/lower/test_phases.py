"""Phases run in the one order that meets the requirements of each."""

from __future__ import annotations

from itertools import permutations
from typing import get_args

import numpy as np
import pytest

import nnc
from nnc.base.options import Options
from nnc.errors import InternalError
from nnc.graph import PASSES, register_pass
from nnc.graph.passes import PhaseName
from nnc.lower.phases import BEFORE_FUSION, DELAY, FUSE, JOIN, SETTLING, facts_after, names_of, run_phases

ALL = (*BEFORE_FUSION, FUSE, JOIN)


def test_every_pass_of_a_phase_is_registered() -> None:
    assert {*names_of((*ALL, DELAY))} <= PASSES.keys()


def test_phases_run_in_the_order_that_is_written_and_in_no_other() -> None:
    facts_after(ALL)
    for order in permutations(SETTLING):
        if order != SETTLING:
            with pytest.raises(InternalError, match="requires that"):
                facts_after(order)
    for late, early in zip(ALL[1:], ALL, strict=False):
        if late.requires & early.provides:
            with pytest.raises(InternalError, match=f"phase '{late.name}' requires"):
                facts_after([phase for phase in ALL if phase is not early])


def test_the_runner_refuses_a_phase_before_it_runs_any() -> None:
    graph = nnc.make_graph(lambda x: x + 1)(np.ones(2))
    with pytest.raises(InternalError, match="phase 'join' requires that commands are kernels"):
        run_phases(graph, (*BEFORE_FUSION, JOIN), Options())
    done = run_phases(graph, ALL, Options())
    assert tuple(record.name for record in done.attrs["passes"]) == names_of(ALL)


def test_a_phase_without_a_pass_is_the_rest_of_it() -> None:
    assert JOIN.without("epilogue").passes == JOIN.passes[1:]


def test_passes_can_be_added_to_each_phase_by_its_name() -> None:
    phases = (*BEFORE_FUSION, DELAY, FUSE, JOIN)
    assert tuple(phase.name for phase in phases) == get_args(PhaseName)


@pytest.mark.usefixtures("own_registries")
def test_an_added_pass_runs_at_the_end_of_its_phase() -> None:
    before = names_of(ALL)
    register_pass("test_last", phase="rewrite")(lambda graph, options: graph)
    register_pass("test_unasked")(lambda graph, options: graph)
    place = before.index("fewer_residuals") + 1
    assert names_of(ALL) == (*before[:place], "test_last", *before[place:])
