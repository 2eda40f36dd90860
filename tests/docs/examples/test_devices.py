"""Examples on a simulated device print the same lines and leave the same files as on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.examples.runner import run

pytest.importorskip("sklearn")
pytest.importorskip("PIL.Image")

SMALL = {
    "digits": ["--epochs", "1", "--batch-size", "64"],
    "char_lstm": ["--epochs", "2", "--hidden", "16", "--characters", "3000", "--streams", "4", "--length", "16"],
    "resnet_cifar": ["--model", "resnet18", "--batch-size", "2", "--steps", "2"],
}
PLAN = (
    "the picture of the plan is"  # and of its memory before that: a device has streams of its own, and so another plan
)


@pytest.mark.parametrize("name", SMALL)
def test_an_example_has_the_results_of_the_cpu(name: str, tmp_path: Path) -> None:
    printed, left = [], []
    for device in ("cpu", "sim:0"):
        out = tmp_path / device / "out"
        out.parent.mkdir()
        printed.append(run(name, out, *SMALL[name], "--device", device).stdout.replace(str(out), "out").split(PLAN)[-1])
        left.append({path.name: path.read_bytes() for path in out.iterdir() if path.name != "resnet_cifar.png"})
    assert printed[0] == printed[1] and left[0] == left[1] and (left[0] or "loss after" in printed[0])


def test_a_device_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run("digits", tmp_path / "out", "--device", "sim", check=False)
    assert done.returncode == 1 and "there is no device 'sim'" in done.stderr and "Fix: use one of" in done.stderr
