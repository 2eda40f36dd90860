"""README's first command, with fewer passes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import nnc
from tests.docs.examples.runner import run

pytest.importorskip("sklearn")
pytest.importorskip("tqdm")
Image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    out = tmp_path_factory.mktemp("digits") / "out"
    return out, run("digits", out, "--epochs", "6", check=False)


@pytest.mark.slow
def test_a_few_passes_read_most_held_out_digits(trained: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = trained
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    found = re.fullmatch(r"test accuracy: ([01]\.\d{3})", last)
    assert found, last
    assert float(found[1]) >= 0.95


def test_the_progress_bar_shows_loss_accuracy_and_speed(trained: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = trained
    assert re.search(
        r"epoch 6/6: \d+/\d+ \(100%\) images, .*images/s.*accuracy=[01]\.\d{3}, loss=\d+\.\d{4}", done.stderr
    )


def test_the_confusion_table_agrees_with_the_accuracy(trained: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = trained
    lines = done.stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("true"))
    rows = [line.replace(".", "0").split() for line in lines[start + 1 : start + 11]]
    table = np.array(rows, dtype=int)
    assert np.array_equal(table[:, 0], range(10))
    counts = table[:, 1:]
    assert counts.sum() == 359
    assert counts.sum(axis=1).min() >= 34  # every class has its share
    assert lines[-1] == f"test accuracy: {np.trace(counts) / counts.sum():.3f}"
    misread = next(line for line in lines if "misread digits are in" in line)
    assert misread.startswith(f"{counts.sum() - np.trace(counts)} ")


def test_the_model_and_the_picture_are_there(trained: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    out, done = trained
    assert sorted(path.name for path in out.iterdir()) == ["digits.safetensors", "misread.png"]
    assert "loaded again, it predicts the same" in done.stdout
    assert nnc.io.load(out / "digits.safetensors")["first"]["weight"].shape == (16, 1, 3, 3)
    with Image.open(out / "misread.png") as picture:
        assert picture.format == "PNG" and picture.width > 100


def test_an_unknown_option_is_refused(tmp_path: Path) -> None:
    done = run("digits", tmp_path / "out", "--epoch-count", "1", check=False)
    assert done.returncode == 2 and "usage:" in done.stderr
