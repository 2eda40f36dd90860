"""Every example at small size: it ends well, and prints and draws its results."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import nnc
from tests.docs.examples.runner import run, shapes, table_below

pytest.importorskip("sklearn")
Image = pytest.importorskip("PIL.Image")


def last_number(text: str, words: str) -> float:
    found = re.search(rf"(-?[\d.]+(?:e-?\d+)?){words}", text.splitlines()[-1])
    assert found, text.splitlines()[-1]
    return float(found[1])


@pytest.mark.slow
def test_gp_regression_predicts_patients_held_out(tmp_path: Path) -> None:
    done = run("gp_regression", tmp_path / "out", "--rows", "120", "--steps", "8")
    rows = table_below(done.stdout, "model")
    assert len(rows) == 2 and rows["gaussian process"][0] < 0.85 and rows["gaussian process"][1] > -1.2
    assert 0.8 <= rows["gaussian process"][2] <= 1.0 and "surprise=" in done.stderr
    drawn = shapes(tmp_path / "out" / "gp_regression.svg")
    assert drawn["circle"] == 30 and drawn["polygon"] == 1 and drawn["polyline"] == 1


@pytest.mark.slow
def test_hmc_agrees_with_the_normal_approximation(tmp_path: Path) -> None:
    done = run("hmc", tmp_path / "out", "--draws", "150", "--warm-up", "100")
    rows = table_below(done.stdout, "weight")
    assert len(rows) == 6
    for mean, deviation, effective, r_hat, mode, normal in rows.values():
        assert abs(mean - mode) < normal and 0.6 < deviation / normal < 1.7 and effective > 50 and 0.98 < r_hat < 1.2
    accepted = re.search(r"accepted: ([\d.]+)", done.stdout)
    assert accepted and 0.5 < float(accepted[1]) < 0.99
    assert shapes(tmp_path / "out" / "hmc.svg")["polyline"] == 4


def test_maml_adapts_better_than_ordinary_training(tmp_path: Path) -> None:
    done = run("maml", tmp_path / "out", "--steps", "200")
    rows = table_below(done.stdout, "squared error after")
    learned, ordinary = rows["meta-learned"], rows["trained on all"]
    assert learned[2] < 0.75 * learned[0] and learned[2] < ordinary[2] and learned[3] < ordinary[0]
    assert shapes(tmp_path / "out" / "maml.svg")["polyline"] == 3


@pytest.mark.slow
def test_lora_learns_turned_digits_with_few_parameters(tmp_path: Path) -> None:
    done = run("lora", tmp_path / "out", "--steps", "120", "--adapting-steps", "80")
    before, whole, lora = table_below(done.stdout, "trained").values()
    assert before[0] == 0 and 50 * lora[0] < whole[0] and 50 * lora[1] < whole[1]
    assert before[2] + 0.2 < lora[2] <= whole[2] + 0.1
    difference = re.search(r"differ by ([\d.e-]+)", done.stdout)
    assert difference and float(difference[1]) < 1e-4
    assert shapes(tmp_path / "out" / "lora.svg")["polyline"] == 2


def test_the_two_gradients_of_an_implicit_layer_agree(tmp_path: Path) -> None:
    done = run("implicit", tmp_path / "out", "--epochs", "2")
    rows = table_below(done.stdout, "gradient")
    assert rows["implicit"][0] == 0 < 100_000 < rows["through the loop"][0]
    assert np.isclose(rows["implicit"][1], rows["through the loop"][1], rtol=1e-3)
    difference = re.search(r"differ by ([\d.e-]+)", done.stdout)
    assert difference and float(difference[1]) < 1e-3
    assert float(done.stdout.split()[-1]) > 0.6
    assert shapes(tmp_path / "out" / "implicit.svg")["polyline"] == 1


@pytest.mark.slow
def test_a_neural_ode_forecasts_better_than_no_change(tmp_path: Path) -> None:
    done = run("neural_ode", tmp_path / "out", "--steps", "8")
    rows = table_below(done.stdout, "rms error")
    assert all(a < b for a, b in zip(rows["neural"][1:], rows["nothing changes"][1:], strict=True))
    steps = re.search(r"tries (\d+) steps", done.stdout)
    assert steps and 5 < int(steps[1]) < 200
    drawn = shapes(tmp_path / "out" / "neural_ode.svg")
    assert drawn["circle"] == 42 and drawn["polyline"] == 2


def test_the_letters_are_learnt_and_written(tmp_path: Path) -> None:
    options = ["--epochs", "3", "--hidden", "48", "--characters", "16000", "--streams", "16", "--length", "16"]
    done = run("char_lstm", tmp_path / "out", *options)
    rows = table_below(done.stdout, "model")
    uniform, n_gram, lstm = (row[0] for row in rows.values())
    assert lstm < 0.85 * uniform and 1.5 < n_gram < 4 and list(rows)[1] == "order-5 n-gram"
    sample = done.stdout.split("-" * 72)[1].strip("\n")
    assert sample.startswith("The ") and 380 <= len(sample) <= 404
    saved = nnc.io.load(tmp_path / "out" / "char_lstm.safetensors")
    assert saved["model"]["embedding"]["weight"].shape == (len(saved["alphabet"]), 64)
    drawn = shapes(tmp_path / "out" / "char_lstm.svg")
    assert drawn["circle"] == 3 and drawn["polyline"] == 2 and "held_out=" in done.stderr


def test_packed_texts_are_learnt_and_need_little_padding(tmp_path: Path) -> None:
    options = ["--epochs", "3", "--features", "32", "--layers", "1", "--tokens", "1024", "--texts", "150"]
    done = run("packed_texts", tmp_path / "out", *options)
    rows = table_below(done.stdout, "model")
    uniform, _, transformer = (row[0] for row in rows.values())
    assert transformer < 0.85 * uniform
    packed, padded = map(float, re.findall(r"([\d.]+)%", done.stdout))
    assert packed < 40 < 70 < padded
    drawn = shapes(tmp_path / "out" / "packed_texts.svg")
    assert drawn["circle"] == 3 and drawn["polyline"] == 2 and "bits=" in done.stderr


def test_the_plan_of_a_resnet_is_printed_before_it_trains(tmp_path: Path) -> None:
    done = run("resnet_cifar", tmp_path / "out", "--model", "resnet18", "--batch-size", "2", "--steps", "1")
    assert "resnet18: 11,173,962 parameters" in done.stdout
    sizes = re.search(
        r"arena ([\d.]+) MiB, at least ([\d.]+) MiB live at once; without sharing ([\d.]+) MiB", done.stdout
    )
    assert sizes
    arena, live, alone = map(float, sizes.groups())
    assert live <= arena < alone
    assert 1.0 < float(done.stdout.split()[-1]) < 6.0
    with Image.open(tmp_path / "out" / "resnet_cifar.png") as picture:
        assert picture.size == (1000, 500) and len(picture.getcolors(100_000)) > 20


def test_every_example_names_its_options() -> None:
    folder = Path(__file__).parents[3] / "examples"
    names = {path.stem for path in folder.glob("*.py")} - {
        "report",
        "distributed",
    }  # the latter writes nothing and is started otherwise
    page = (folder.parent / "docs" / "examples.md").read_text()
    assert names == set(re.findall(r"python examples/(\w+)\.py", page))
    for name in names:
        text = (folder / f"{name}.py").read_text()
        assert "--out" in text and "nnc.debug.progress" in text and f"python examples/{name}.py" in text


@pytest.mark.slow
def test_onnx_finetune_trains_an_imported_model(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("magika")
    done = run("onnx_finetune", tmp_path / "out", "--steps", "30", "--pieces", "24", "--batch", "12")
    assert re.search(r"11 weights with [\d,]+ numbers; \d+ pieces to learn from", done.stdout)
    assert last_number(done.stdout, " after") > last_number(done.stdout, " before") + 0.1
    params = nnc.io.load(tmp_path / "out" / "finetuned.safetensors")
    assert len(nnc.tree.leaves(params)) == 13
