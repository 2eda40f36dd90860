"""TensorBoard shows scalars and histograms that a training loop writes, also from within a compiled step."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)
Y = X @ np.array([1.0, -2.0, 0.5], np.float32)


def writer_of(module: str) -> Any:
    pytest.importorskip(module.partition(".")[0], reason="writes the files")
    pytest.importorskip("tensorboard", reason="reads the files")
    return importlib.import_module(module).SummaryWriter


def train(writer: Any) -> tuple[list[float], Any]:
    """A few steps; the loss is written by the loop, the gradient's norm by the step itself."""
    optimizer = optim.adam(0.1)

    def write(count: Any, gradient: Any) -> None:
        writer.add_scalar("norm", float(nnp.linalg.norm(gradient)), int(count))

    @nnc.compile
    def step(w: Any, state: Any, count: Any) -> Any:
        loss, gradient = nnc.value_and_grad(lambda w: nnp.mean((X @ w - Y) ** 2))(w)
        nnc.debug.callback(write, count, gradient)
        updates, state = optimizer.update(gradient, state)
        return optim.apply_updates(w, updates), state, loss

    w = nnp.zeros(3)
    state, losses = optimizer.init(w), []
    for i in range(4):
        w, state, loss = step(w, state, i)
        writer.add_scalar("loss", float(loss), i)
        writer.add_histogram("w", np.asarray(w), i)
        losses.append(float(loss))
    return losses, w


@pytest.mark.parametrize("module", ["tensorboardX", "torch.utils.tensorboard"])
@pytest.mark.filterwarnings("ignore")  # of protobuf and TensorBoard
def test_a_training_loop_writes_scalars_and_histograms(module: str, tmp_path: Path) -> None:
    with writer_of(module)(str(tmp_path)) as writer:
        losses, w = train(writer)
    events = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    read = events.EventAccumulator(str(tmp_path))
    read.Reload()
    assert [point.value for point in read.Scalars("loss")] == losses
    assert [point.step for point in read.Scalars("norm")] == [0, 1, 2, 3]
    last = read.Histograms("w")[-1].histogram_value
    assert last.num == 3 and last.min == pytest.approx(float(w.min())) and last.max == pytest.approx(float(w.max()))
