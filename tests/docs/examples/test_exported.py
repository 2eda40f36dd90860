"""Exported examples: Python makes them, C and Rust run them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.examples.runner import run
from tests.unit.exporting.harness import lapack

pytest.importorskip("sklearn")
ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "exported"
NOTHING_LEFT = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-fsanitize=address,undefined"]


def do(command: list[str], folder: Path) -> str:
    """Runs a command in a folder; returns its output."""
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=120)
    return done.stdout


def test_a_c_program_reads_a_digit_from_a_picture(tmp_path: Path) -> None:
    printed = run("exported/lenet", tmp_path / "lenet", "--steps", "150").stdout
    label = printed.split("lenet.pgm shows ")[1][0]
    source = str(EXAMPLES / "lenet.c")
    assert len(Path(source).read_text().splitlines()) <= 60
    do(["cc", *NOTHING_LEFT, "-Ilenet", source, "lenet/lenet.o", "-o", "read_digit"], tmp_path)
    assert do(["./read_digit", "lenet.pgm"], tmp_path).startswith(f"{label} (")
    (tmp_path / "wrong.pgm").write_bytes(b"P5\n2 2\n255\n1234")
    refused = subprocess.run(["./read_digit", "wrong.pgm"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "not a PGM file" in refused.stderr


def test_a_training_step_runs_in_c_and_in_rust_within_its_budget(tmp_path: Path) -> None:
    printed = run("exported/training", tmp_path / "training").stdout
    assert "training for native" in printed
    header = (tmp_path / "training" / "training.h").read_text()
    (arena,) = (line.split()[-1] for line in header.splitlines() if line.startswith("#define training_ARENA_BYTES"))
    assert int(arena) <= 256 << 10
    objects = ["training/training.o", "training_start/start.o"]
    source = str(EXAMPLES / "training.c")
    do(["cc", *NOTHING_LEFT, "-Itraining", "-Itraining_start", source, *objects, "-lm", "-o", "spirals"], tmp_path)
    last = do(["./spirals"], tmp_path).splitlines()[-1]
    assert float(last.split()[-1]) < 0.1
    if shutil.which("rustc") is None:
        pytest.skip("rustc is not installed")
    link = "link-arg=training/training.o"
    do(["rustc", "-O", "-D", "warnings", "-C", link, "-o", "spirals_rs", str(EXAMPLES / "training.rs")], tmp_path)
    last = do(["./spirals_rs", "training"], tmp_path).splitlines()[-1]
    assert float(last.split()[-1]) < 0.1


@pytest.mark.slow
def test_a_c_program_fits_rates_with_the_gradient_of_a_stiff_solver(tmp_path: Path) -> None:
    library = lapack()
    if library is None:
        pytest.skip("no LAPACK with integers of 32 bits is here")
    run("exported/stiff", tmp_path / "stiff")
    renamed = [f"--redefine-sym={routine}=scipy_{routine}" for routine in ("dgesv_", "dgetrf_")]
    do(["objcopy", *renamed, "stiff/stiff.o"], tmp_path)
    link = [str(library), f"-Wl,-rpath,{library.parent}", "-Wl,--allow-shlib-undefined", "-lm"]
    source = str(EXAMPLES / "stiff.c")
    do(
        ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Istiff", source, "stiff/stiff.o", *link, "-o", "fit"],
        tmp_path,
    )
    assert abs(float(do(["./fit"], tmp_path).split()[-1]) - 0.04) < 1e-3


IN_NODE = """
import { readFileSync } from "node:fs";
import { load } from "./lenet/lenet.mjs";
const lenet = await load(readFileSync("lenet/lenet.wasm"));
const pixels = readFileSync("lenet.pgm").subarray(-784);
const [shares] = lenet(Float32Array.from(pixels, (x) => x / 255));
console.log(shares.indexOf(Math.max(...shares)));
"""


def test_the_module_of_the_page_reads_the_digit_in_node(tmp_path: Path) -> None:
    if not all(map(shutil.which, ("wasm-ld", "node"))):
        pytest.skip("wasm-ld or node is not installed")
    printed = run("exported/lenet", tmp_path / "lenet", "--steps", "150", "--target", "wasm32").stdout
    (tmp_path / "read.mjs").write_text(IN_NODE)
    assert do(["node", "read.mjs"], tmp_path).strip() == printed.split("lenet.pgm shows ")[1][0]
    page = (EXAMPLES / "browser.html").read_text()
    assert "./lenet.mjs" in page and "lenet.wasm" in page
