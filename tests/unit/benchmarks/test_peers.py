"""The comparison with other frameworks is not timed in tests; that its rows are sound and its machinery works is."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import nnc
from benchmarks.peers import run
from benchmarks.peers.__main__ import choose_rows, main
from benchmarks.peers.machine import compile_package
from benchmarks.peers.process import CAPS, Process, Surroundings, Way, WorkerError
from benchmarks.peers.row import Machine, Work
from benchmarks.peers.rows import ROWS
from benchmarks.peers.rows.networks import ROWS as NETWORKS
from benchmarks.peers.run import find_disagreements, max_distance
from nnc.nn import models

MACHINE = Machine(flops=1e9, bandwidth=1e9, latency=1e-9)


def test_names_of_rows_are_unique_and_groups_stay_in_one_family() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    families = {(row.group, row.case.partition(".")[0], row.frameworks) for row in ROWS}
    assert len(families) == len({row.group for row in ROWS})


def test_rows_are_chosen_by_the_beginning_of_their_names() -> None:
    assert {row.group for row in choose_rows(["resnet", "rk4"])} == {"resnet-18", "resnet-50", "rk4"}
    assert choose_rows([]) == list(ROWS)
    with pytest.raises(SystemExit, match="no row begins with nothing"):
        choose_rows(["nothing"])


def test_packages_are_compiled_where_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_package").mkdir()
    (tmp_path / "some_package" / "__init__.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    compile_package("some_package")
    assert list((tmp_path / "some_package").rglob("__init__*.pyc"))


def test_weights_that_are_drawn_are_those_of_the_models() -> None:
    row = next(row for row in NETWORKS if row.name == "resnet-18")
    model = nnc.eval_shape(lambda: models.resnet18(num_classes=10, small_images=True, key=nnc.random.key(0)))
    wanted = sum(math.prod(leaf.shape) for leaf in nnc.tree.leaves(model) if hasattr(leaf, "shape"))
    assert sum(array.size for array in row.inputs()["weights"].values()) == wanted


def test_floors_name_the_resource_that_bounds_them() -> None:
    assert Work(flops=4e9, nbytes=1e9).floor(MACHINE) == (4.0, "flops")
    assert Work(nbytes=2e9, chain=1e9).floor(MACHINE) == (2.0, "bytes")


def test_results_that_differ_are_named() -> None:
    ones = [[np.ones(3), np.ones(2)]]
    assert find_disagreements({"nnc": ones, "other": ones}, 0.0) == []
    far = [[np.ones(3), np.array([1.0, 1.5])]]
    assert find_disagreements({"nnc": ones, "other": far}, 0.1) == ["other differs from nnc by 0.5, more than 0.1"]
    assert find_disagreements({"nnc": ones, "other": [[np.full(3, np.nan), np.ones(2)]]}, 0.1) != []
    assert max_distance(ones, [[np.ones(3)]]) == np.inf


def test_a_worker_that_fails_says_why(tmp_path: Path) -> None:
    with Process(Way("numpy"), "calls", tmp_path, 60) as worker:
        assert worker.ask("start") > 0
        with pytest.raises(WorkerError, match="KeyError: 'no such row'"):
            worker.ask("first", "no such row")


@pytest.mark.parametrize("isa", list(CAPS))
def test_frameworks_tell_the_instructions_that_they_are_kept_to(isa: str, tmp_path: Path) -> None:
    found = {}
    for framework in ("nnc", "numpy"):
        with Process(Way(framework), "calls", tmp_path, 60, Surroundings(isa=isa)) as worker:
            worker.ask("start")
            found[framework] = worker.ask("instructions")
    assert found["nnc"].endswith(found["numpy"])
    if isa:
        level, onednn, openblas = {"sse4": ("v2", "SSE41", "Nehalem"), "avx2": ("v3", "AVX2", "Haswell")}[isa]
        assert found["nnc"] == f"kernels for x86-64-{level}, oneDNN up to {onednn}, OpenBLAS for {openblas}"


def test_first_calls_are_medians_of_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        """First calls take 1, 5 and 2 seconds where nothing is kept, a tenth of the number of calls where something is."""

        used: ClassVar[list[Path]] = []

        def __init__(self, way: Way, family: str, cache: Path, *_: object) -> None:
            self.way, self.cache = way, cache

        def __enter__(self) -> Fake:
            return self

        def __exit__(self, *_: object) -> None: ...

        def ask(self, name: str, *arguments: object) -> Any:
            if name != "first":
                return {"start": 0.0, "values": [], "run": [1.0], "memory": {}, "instructions": "any"}[name]
            is_kept = self.cache in self.used
            self.used.append(self.cache)
            fresh = len({cache for cache in self.used if cache.name.startswith(self.way.name)})
            return (len(self.used) / 10 if is_kept else (1.0, 5.0, 2.0)[fresh - 1]), []

    monkeypatch.setattr(run, "Process", Fake)
    (outcome,) = run.measure_group([NETWORKS[0]], ["nnc"], run.Plan(1, 0.0, (2,), 1.0, first_calls=3))
    assert [figure.first for figure in outcome.figures] == [2.0]
    assert outcome.warm == 0.4  # the second, fourth and sixth call of all
    assert len(set(Fake.used)) == 3


@pytest.mark.parametrize(("jax", "turns"), [(1.01, 8), (0.99, 8), (1.05, 2), (0.9, 2)])
def test_a_peer_that_is_close_is_timed_longer(jax: float, turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[str] = Counter()

    class Fake(Process):
        """A step takes 1 second in nnc, 2 in NumPy."""

        def __init__(self, way: Way, *_: object) -> None:
            self.way = way

        def __exit__(self, *_: object) -> None: ...

        def ask(self, name: str, *arguments: object) -> Any:
            asked[self.way.framework] += name == "run"
            step = {"nnc": 1.0, "jax": jax, "numpy": 2.0}[self.way.framework]
            known = {"start": 0.0, "first": (0.0, []), "values": [], "run": [step], "memory": {}, "instructions": "any"}
            return known[name]

    monkeypatch.setattr(run, "Process", Fake)
    monkeypatch.setattr(run, "PAUSE", 0.0)
    monkeypatch.setattr(run, "missing", lambda framework: None)
    row = replace(NETWORKS[0], frameworks=("nnc", "jax", "numpy"))
    (outcome,) = run.measure_group([row], ["nnc", "jax", "numpy"], run.Plan(2, 0.0, (2,), 1.0))
    assert asked == {"nnc": turns, "jax": turns, "numpy": 2}
    assert [figure.steps for figure in outcome.figures] == [turns, turns, 2]


@pytest.mark.slow
def test_rows_run_agree_and_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    names = ["eager-add", "eager-where", "eager-matmul"]
    assert main([*names, "--quick", "--frameworks", "nnc,numpy", "--json", str(file)]) == 0
    assert "best peer / nnc" in capsys.readouterr().out
    rows = {row["row"]: row for row in json.loads(file.read_text())["rows"]}
    assert set(rows) == set(names)
    assert {figure["way"] for figure in rows["eager-add"]["figures"]} == {"nnc", "numpy"}
    assert all(row["disagreements"] == [] and row["problems"] == {} for row in rows.values())
