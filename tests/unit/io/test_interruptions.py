"""Saving while the process is killed, and training that goes on from a file bit by bit."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import data, io, optim
from nnc.errors import TreeError

SAVER = """
import sys, numpy as np, nnc
size, path = 200_000, sys.argv[1]
for n in range(1, 1_000_000):
    nnc.io.save(path, {"n": n, "x": np.full(size, n, np.int32), "layers": [np.full(7, n, np.float32)]})
    print(n, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_process_killed_while_it_saves_leaves_the_last_file_or_the_one_before(tmp_path: Path) -> None:
    path, rng = tmp_path / "model.safetensors", random.Random(0)
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", SAVER, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        time.sleep(rng.uniform(0.02, 0.1))
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
        process.wait(timeout=60)
        process.stdout.close()
        found = io.load(path)
        assert found["n"] - int(rest[-1] if rest else 1) in (0, 1)
        assert np.all(found["x"] == found["n"]) and np.all(found["layers"][0] == found["n"])


SLOW_SAVER = """
import os, sys, nnc
def fsync(descriptor):
    print("writing", flush=True)
    sys.stdin.read()
os.fsync = fsync
nnc.io.save(sys.argv[1], [1.5] * 3)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no locks that end with their process")
def test_parts_of_killed_saves_are_removed_by_the_next_save_and_those_of_running_ones_are_not(tmp_path: Path) -> None:
    def start(name: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", SLOW_SAVER, str(tmp_path / name)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "writing\n"
        return process

    with start("killed") as killed, start("running") as running:
        killed.kill()
        killed.wait()
        (tmp_path / ".film.part").write_text("of another program")
        assert len(list(tmp_path.glob(".*.part"))) == 3
        io.save(tmp_path / "x", 2)
        assert sorted(path.name.split(".")[1] for path in tmp_path.glob(".*.part")) == ["film", "running"]
        running.communicate("")
    assert io.load(tmp_path / "running") == [1.5] * 3
    assert {path.name for path in tmp_path.iterdir()} == {".film.part", "running", "x"}


def test_names_may_be_as_long_as_the_system_allows(tmp_path: Path) -> None:
    io.save(tmp_path / ("x" * 255), 1)
    assert [path.name for path in tmp_path.iterdir()] == ["x" * 255]


def loss(params: Any, x: Any, y: Any) -> Any:
    return nnp.mean((nnp.tanh(x @ params["w"] + params["b"]) - y) ** 2)


OPTIMIZER = optim.chain(
    optim.clip_by_global_norm(1.0),
    optim.multi_transform({"matrix": optim.muon(0.05), "rest": optim.adamw(optim.linear_schedule(0.1, 0.0, 20))},
                          {"w": "matrix", "b": "rest"}),
)  # fmt: skip


@nnc.compile
def train_step(state: Any, x: Any, y: Any) -> Any:
    key, use = nnc.random.split(state["key"])
    noisy = x + 0.01 * nnc.random.normal(use, x.shape)
    grads = nnc.grad(loss)(state["params"], noisy, y)
    updates, optimizer = OPTIMIZER.update(grads, state["optimizer"], state["params"])
    scaling = state["scaling"].adjust(optim.all_finite(grads))
    return {
        "params": optim.apply_updates(state["params"], updates), "optimizer": optimizer, "key": key, "scaling": scaling,
        "step": state["step"] + 1,
    }  # fmt: skip


def start(seed: int) -> Any:
    params = {"w": nnc.random.normal(nnc.random.key(seed), (4, 3)), "b": nnp.zeros(3)}
    return {
        "params": params, "optimizer": OPTIMIZER.init(params), "key": nnc.random.key(seed), "step": nnp.asarray(0),
        "scaling": optim.DynamicLossScale(period=3),
    }  # fmt: skip


def train(state: Any, steps: int) -> Any:
    rng = np.random.default_rng(0)
    arrays = rng.normal(size=(20, 4)).astype(np.float32), rng.normal(size=(20, 3)).astype(np.float32)
    with data.batches(arrays, 8, nnc.random.key(5), 2, epochs=None, drop_last=True, step=int(state["step"])) as source:
        for _ in range(steps):
            state = train_step(state, *next(source))
    return state


def test_training_resumes_bit_by_bit_with_parameters_optimizer_key_and_step(tmp_path: Path) -> None:
    whole = train(start(1), 9)
    io.save(tmp_path / "x", train(start(1), 4))
    resumed = train(io.load(tmp_path / "x", like=start(2)), 5)
    assert int(resumed["step"]) == 9 and nnc.tree.structure(resumed) == nnc.tree.structure(whole)
    for a, b in zip(nnc.tree.leaves(whole), nnc.tree.leaves(resumed), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_a_checkpoint_of_another_model_says_which_paths_differ(tmp_path: Path) -> None:
    io.save(tmp_path / "x", start(1))
    other = start(1)
    other["params"]["w"] = nnp.zeros((4, 2))
    other["params"]["extra"] = nnp.zeros(1)
    other["scaling"] = optim.StaticLossScale(1.0)
    other["key"] = nnp.zeros(2)
    with pytest.raises(TreeError) as error:
        io.load(tmp_path / "x", like=other)
    text = str(error.value)
    for line in (
        "params.w: float32[4,3] in the file, float32[4,2] in `like`",
        "params.extra: missing in the file, float32[1] in `like`",
        "scaling.counter: int64[] in the file, missing in `like`",
        "key: uint32[2] in the file, float32[2] in `like`",
    ):
        assert line in text
    assert "optimizer" not in text


def test_nothing_in_a_file_is_run_when_it_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x80\x04\x95cos\nsystem\n(S'exit 1'\ntR.")  # a pickle that calls os.system
    with pytest.raises(nnc.errors.FileFormatError):
        io.load(tmp_path / "x")
    sources = [path.read_text() for path in Path(io.__file__).parent.glob("*.py")]
    assert not any("import pickle" in text or "numpy.load(" in text or "np.load(" in text for text in sources)
