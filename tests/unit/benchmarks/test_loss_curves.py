"""Networks learn as PyTorch's do: the same losses, step by step, from the same weights."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from benchmarks.peers.rows.networks import ROWS
from benchmarks.peers.with_nnc import networks

STEPS = 5


def losses(step: Any) -> list[float]:
    """The losses of the first steps."""
    step = getattr(step, "step", step)
    return [float(np.asarray(step())) for _ in range(STEPS)]


@pytest.mark.parametrize("name", ["resnet-18", "transformer"])
def test_five_training_steps_give_pytorch_s_losses(name: str) -> None:
    pytest.importorskip("torch")
    with_torch = importlib.import_module("benchmarks.peers.with_torch.networks")
    wrap = importlib.import_module("benchmarks.peers.with_torch.wrap").make_wrap("torch")
    (row,) = (row for row in ROWS if row.name == name)
    case = row.case.partition(".")[2]
    mine = losses(getattr(networks, case)(row.inputs(), **row.settings))
    theirs = losses(getattr(with_torch, case)(row.inputs(), **row.settings, wrap=wrap))
    np.testing.assert_allclose(mine, theirs, rtol=1e-4)
    assert mine[-1] < mine[0]
