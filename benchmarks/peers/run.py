"""Runs rows: workers are started one after the other, agree on results, then take turns, so that a noisy minute meets them all."""

from __future__ import annotations

import importlib.util
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.process import ALONE, Process, Surroundings, Way, WorkerError, busy_processes
from benchmarks.peers.row import NDArray, Row

PAUSE = 0.15  # seconds between turns, longer than the threads of OpenBLAS (105 ms here) and libgomp spin after their last work
CHECKED = 2  # steps after the first whose results are compared
CLOSE, MORE = (
    0.02,
    3,
)  # where the best peer is no further from nnc, both take so many times the turns again: noise would decide


@dataclass(frozen=True)
class Plan:
    """The extent of the measurements."""

    rounds: int
    seconds: float  # of a turn
    torch_threads: tuple[int, ...]
    timeout: float
    first_calls: int = 1  # each in a process of its own
    surroundings: Surroundings = ALONE


FULL = Plan(rounds=12, seconds=0.15, torch_threads=(2, 1), timeout=600, first_calls=3)
QUICK = Plan(rounds=3, seconds=0.04, torch_threads=(2,), timeout=180)


@dataclass(frozen=True)
class Figure:
    """The measurement of a way to run a row: seconds and bytes."""

    way: str
    framework: str
    step: float
    least: float
    steps: int
    first: float  # the median, where it was measured several times
    memory: dict[str, int]
    scaled: int = 1


@dataclass
class Outcome:
    """The measurements of a row, and its problems."""

    row: Row
    figures: list[Figure] = field(default_factory=list)
    warm: float | None = None  # seconds of nnc's first call where an earlier process left its cache
    problems: dict[str, str] = field(default_factory=dict)  # by way: it could not run
    disagreements: list[str] = field(default_factory=list)
    instructions: dict[str, str] = field(default_factory=dict)  # by framework, as its libraries tell
    is_alone: bool = True  # whether first calls and memory are the row's own

    def best(self, framework: str) -> Figure | None:
        """The fastest figure of a framework."""
        return min((f for f in self.figures if f.framework == framework), key=lambda f: f.step, default=None)

    @property
    def least_ratio(self) -> float | None:
        """The least time of any peer by the least time of nnc, if both ran."""
        nnc = [figure.least for figure in self.figures if figure.framework == "nnc"]
        peers = [figure.least for figure in self.figures if figure.framework != "nnc"]
        return min(peers) / min(nnc) if nnc and peers else None

    def best_peer(self) -> Figure | None:
        """The fastest figure of another framework than nnc."""
        return min((f for f in self.figures if f.framework != "nnc"), key=lambda f: f.step, default=None)


def missing(framework: str) -> str | None:
    """The reason why a framework cannot run here, if so."""
    needed = {"jax": ("jax", "optax"), "torch": ("torch",), "torch.compile": ("torch",)}.get(framework, ())
    for package in needed:
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed"
    if framework == "torch.compile" and shutil.which(os.environ.get("CXX", "g++")) is None:
        return "no C++ compiler"
    return None


def find_ways(row: Row, frameworks: Sequence[str], plan: Plan) -> list[Way]:
    """The ways in which a row is run."""
    return [
        Way(framework, threads)
        for framework in row.frameworks
        if framework in frameworks
        for threads in (plan.torch_threads if framework.startswith("torch") else (2,))
    ]


def measure_group(rows: Sequence[Row], frameworks: Sequence[str], plan: Plan) -> list[Outcome]:
    """The outcomes of rows that share processes."""
    outcomes = {row.name: Outcome(row, is_alone=len(rows) == 1) for row in rows}
    family = rows[0].case.partition(".")[0]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        workers: list[Process] = []
        for way in find_ways(rows[0], frameworks, plan):
            problem = missing(way.framework)
            if problem is None:
                worker = stack.enter_context(Process(way, family, folder / way.name, plan.timeout, plan.surroundings))
                try:
                    worker.ask("start")
                    workers.append(worker)
                except WorkerError as error:
                    problem = str(error)
            if problem is not None:
                for outcome in outcomes.values():
                    outcome.problems[way.name] = problem
        stack.enter_context(busy_processes(plan.surroundings))
        for outcome in outcomes.values():
            _measure(outcome, workers, plan)
        for worker in workers:
            try:
                outcomes[rows[0].name].instructions[worker.way.framework] = worker.ask("instructions")
            except WorkerError as error:
                outcomes[rows[0].name].problems[worker.way.name] = str(error)
        if len(rows) == 1 and plan.first_calls:
            _measure_first_calls(outcomes[rows[0].name], [worker.way for worker in workers], plan, folder)
    return list(outcomes.values())


def _measure_first_calls(outcome: Outcome, ways: Sequence[Way], plan: Plan, folder: Path) -> None:
    """First calls again, in turns, and nnc's with the cache that it left; one alone may meet a bad moment."""
    row, nnc = outcome.row, Way("nnc")
    family = row.case.partition(".")[0]

    def first(way: Way, cache: Path) -> float:
        with Process(way, family, cache, plan.timeout, plan.surroundings) as worker:
            worker.ask("start")
            return float(worker.ask("first", row.name)[0])

    found = {figure.way: [figure.first] for figure in outcome.figures}
    again = [way for way in ways if way.name in found and way.threads == 2]
    warm: list[float] = []
    for turn in range(plan.first_calls):
        if turn:
            for way in again:
                found[way.name].append(first(way, folder / f"{way.name}, turn {turn}"))
        if nnc.name in found:
            warm.append(first(nnc, folder / nnc.name))
    outcome.figures = [replace(figure, first=statistics.median(found[figure.way])) for figure in outcome.figures]
    outcome.warm = statistics.median(warm) if warm else None


def _measure(outcome: Outcome, workers: Sequence[Process], plan: Plan) -> None:
    """First calls one after the other, the comparison of results, then steps in turns."""
    row = outcome.row
    firsts: dict[Process, float] = {}
    results: dict[Process, list[list[NDArray]]] = {}
    for worker in workers:
        try:
            firsts[worker], values = worker.ask("first", row.name)
            results[worker] = [values, *worker.ask("values", CHECKED)]
        except WorkerError as error:
            outcome.problems[worker.way.name] = str(error)
    compared = {w.way.name: values for w, values in results.items() if w.way.framework not in row.parts}
    outcome.disagreements = find_disagreements(compared, row.rtol)
    times: dict[Process, list[float]] = {worker: [] for worker in results}

    def take_turns(those: Sequence[Process], rounds: int) -> None:
        for _ in range(rounds):
            for worker in those:
                if worker in times:
                    time.sleep(PAUSE)
                    try:
                        times[worker] += worker.ask("run", plan.seconds)
                    except WorkerError as error:
                        outcome.problems[worker.way.name] = str(error)
                        del times[worker]

    take_turns(list(times), plan.rounds)
    steps = {worker: statistics.median(found) * _scale(row, worker.way) for worker, found in times.items()}
    take_turns(find_close(steps), MORE * plan.rounds)
    for worker, found in times.items():
        scale = _scale(row, worker.way)
        outcome.figures.append(
            Figure(
                worker.way.name,
                worker.way.framework,
                statistics.median(found) * scale,
                min(found) * scale,
                len(found),
                firsts[worker],
                worker.ask("memory"),
                row.parts.get(worker.way.framework, 1),
            )
        )


def _scale(row: Row, way: Way) -> float:
    """Returns the factor from the time of a timed call to the time of a step."""
    return row.parts.get(way.framework, 1) / row.calls


def find_close(steps: Mapping[Process, float]) -> list[Process]:
    """nnc and the best peer, if their steps take nearly the same time."""
    mine = [worker for worker in steps if worker.way.framework == "nnc"]
    peers = sorted(set(steps).difference(mine), key=steps.__getitem__)
    if not mine or not peers or abs(steps[peers[0]] / steps[mine[0]] - 1) > CLOSE:
        return []
    return [mine[0], peers[0]]


def find_disagreements(results: dict[str, list[list[NDArray]]], rtol: float) -> list[str]:
    """Texts on results that lie further apart than `rtol` times the largest number of them, the first way being right."""
    if not results:
        return []
    (first, expected), *others = results.items()
    found = []
    for name, values in others:
        distance = max_distance(expected, values)
        if not distance <= rtol:
            found.append(f"{name} differs from {first} by {distance:.2g}, more than {rtol:.2g}")
    return found


def max_distance(expected: Any, values: Any) -> float:
    """The largest difference of steps' results, relative to the largest number in the array."""
    distances = [0.0]
    for step, other in zip(expected, values, strict=True):
        if len(step) != len(other) or any(a.shape != b.shape for a, b in zip(step, other, strict=True)):
            return float("inf")
        for a, b in zip(step, other, strict=True):
            wide, other_wide = np.asarray(a, np.float64), np.asarray(b, np.float64)
            size = max(float(np.max(np.abs(wide), initial=0)), 1e-30)
            distances.append(float(np.max(np.abs(wide - other_wide), initial=0)) / size)
    return float(np.max(distances))  # NaN, if there is one
