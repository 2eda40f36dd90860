"""Small networks train as in PyTorch, from equal weights.

python -m benchmarks.training --quick --record        renews PyTorch's curves, in training_curves.json
"""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from benchmarks.training import curves, with_nnc
from benchmarks.training.curves import Curve
from benchmarks.training.runs import QUICK, RUNS, Run, choose

CURVES = curves.read(Path(__file__).with_name("training_curves.json"))
LOSSES, NORMS = 1e-4, 1e-5  # the largest differences, relative to PyTorch's numbers


@pytest.mark.parametrize("run", QUICK, ids=lambda run: run.name)
def test_losses_and_norms_of_parameters_are_pytorch_s_at_each_step(run: Run) -> None:
    wanted = CURVES[run.name]
    apart = curves.difference(with_nnc.train(run, len(wanted.losses)), wanted)
    assert apart.losses < LOSSES and apart.norms < NORMS


def test_recorded_curves_are_of_the_runs_that_there_are() -> None:
    assert list(CURVES) == [run.name for run in QUICK]
    assert {run.model for run in RUNS} == {run.model for run in QUICK}


def test_weights_of_all_runs_fit_their_networks() -> None:
    names = {run.name: set(run.layers().shapes) for run in (*RUNS, *QUICK)}
    assert all(names.values())
    assert "words.weight" in names["gpt"] and "head.weight" not in names["gpt"]


def test_pytorch_takes_the_way_that_is_recorded() -> None:
    pytest.importorskip("torch")
    found = importlib.import_module("benchmarks.training.with_torch").train(QUICK[0], 3)
    wanted = CURVES["gpt"]
    assert curves.difference(found, Curve(wanted.losses[:3], wanted.norms[:3])).losses < 1e-5


def test_runs_are_chosen_by_the_beginning_of_their_names() -> None:
    assert [run.name for run in choose(RUNS, ["gpt-", "vit"])] == ["gpt-small", "gpt-words", "vit"]
    assert choose(QUICK, []) == list(QUICK)
    with pytest.raises(SystemExit, match="no run begins with nothing: there are gpt, "):
        choose(QUICK, ["nothing"])


def test_differences_are_relative_and_nan_is_far_from_all() -> None:
    one = Curve((1.0, 2.0), (4.0, 4.0))
    apart = curves.difference(Curve((1.0, 2.5), (4.0, 3.0)), one)
    assert (apart.losses, apart.norms) == (0.25, 0.25)
    assert np.isinf(curves.difference(Curve((1.0, np.nan), (4.0, 4.0)), one).losses)
    lines = list(curves.table("a run", one, one))
    assert lines[0] == "a run" and lines[-1] == "largest differences: losses 0.0e+00, norms 0.0e+00"
