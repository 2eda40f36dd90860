"""Runs tests on mutants, each worker in a copy of the repository."""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mutation.mutants import Mutant
from mutation.reach import Reach

STARTING = 60.0  # seconds in which a process imports and collects the tests, on a busy machine
COLLECTING = 1.0  # seconds that a file of tests costs, beside its tests
FIRST = 4.0  # seconds of the tests that run first, in a process of their own: most mutants fall there, and few files are read
SLOWER = 5.0  # times the expected duration after which a test is taken to hang
FEW = 40  # tests; where fewer enter a function, tests of its file are chosen as well: a function behind a cache is entered once
WHOLE = (
    "tests/docs/test_public_signatures.py",
    "tests/unit/test_frozen.py",
    "tests/golden/",
)  # look at more than they call
TAIL = 400  # characters of the tests' output that a report shows


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of the tests on one mutant.

    Attributes:
        mutant: the change.
        killed: whether a test failed, crashed or hung.
        tests: number of tests that could be run in the time given.
        reached: number of tests that enter the changed function.
        output: end of the tests' output.
    """

    mutant: Mutant
    killed: bool
    tests: int
    reached: int
    output: str


def choose_tests(reach: Reach, mutant: Mutant, seconds: float) -> list[str]:
    """Chooses the tests that are most likely to notice a change.

    Tests that enter the function come first, and among them tests of the file's own test module; then tests by how few functions
    they enter, one of each test function before a second one of any; at last those in `WHOLE`, which look at more than they enter.

    Args:
        reach: which tests enter which functions.
        mutant: the change.
        seconds: sum of durations to stay below.

    Returns:
        Ids of tests in the order in which to run them.
    """
    own = f"test_{Path(mutant.path).name}"
    turns: dict[str, int] = {}

    def rank(test: str) -> tuple[bool, bool, int, int]:
        file, _, name = test.partition("::")
        function = f"{file}::{name.partition('[')[0]}"
        turns[function] = turns.get(function, 0) + 1
        return test not in entering, not file.endswith(own), turns[function], len(reach.entered[test])

    near = reach.tests_of(mutant.path, mutant.function)
    entering = set(near)
    if len(near) < FEW:
        near = list(dict.fromkeys([*near, *reach.tests_of(mutant.path, ""), *(t for t in reach.entered if own in t)]))
    by_size = sorted(near, key=lambda test: len(reach.entered[test]))
    chosen = within(reach, sorted(by_size, key=rank), seconds)
    return [*chosen, *(test for test in reach.entered if test.startswith(WHOLE) and test not in chosen)]


def within(reach: Reach, tests: Sequence[str], seconds: float) -> list[str]:
    """Returns the tests, without those that would take too long together."""
    chosen: list[str] = []
    files: set[str] = set()
    spent = 0.0
    for test in tests:
        file = test.partition("::")[0]
        cost = reach.seconds[test] + COLLECTING * (file not in files)
        if spent + cost <= seconds:
            chosen.append(test)
            files.add(file)
            spent += cost
    return chosen


def copy_tree(root: Path, to: Path) -> None:
    """Copies the files of a repository that tests need."""
    ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "out")
    shutil.copytree(root, to, ignore=ignored)


def run_tests(folder: Path, tests: Sequence[str], limit: float) -> tuple[bool, str]:
    """Runs tests in a folder until the first fails.

    Returns:
        Whether all passed in time; the end of the output.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".tests") as names:
        names.write("\n".join(tests))
        names.flush()
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "mutation.chosen",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-x",
            "-q",
            *files,
        ]
        settings = {"NNC_MUTATION_TESTS": names.name, "PYTHONPATH": str(folder), "HYPOTHESIS_PROFILE": "ci"}
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **settings}, start_new_session=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return False, f"no end after {limit:.0f} s"
    return process.returncode == 0, output[-TAIL:]


def judge(folder: Path, reach: Reach, mutant: Mutant, seconds: float) -> Verdict:
    """Changes the file in a worker's folder, runs the tests, and restores the file."""
    reached = len(reach.tests_of(mutant.path, mutant.function))
    tests = choose_tests(reach, mutant, seconds)
    if not tests:
        return Verdict(mutant, False, 0, reached, "no test enters it")
    file = folder / mutant.path
    original = file.read_text()
    first = within(reach, tests, FIRST)
    passed, output = True, ""
    try:
        write_source(file, mutant.source)
        for part in (first, [test for test in tests if test not in first]):
            if passed and part:
                passed, output = run_tests(folder, part, STARTING + SLOWER * sum(map(reach.seconds.__getitem__, part)))
    finally:
        write_source(file, original)
    return Verdict(mutant, not passed, len(tests), reached, output)


def write_source(file: Path, source: str) -> None:
    """Writes a module, and removes its byte code: Python tells it by size and second of the source alone."""
    file.write_text(source)
    for code in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        code.unlink()


def judge_all(
    root: Path, reach: Reach, mutants: Sequence[Mutant], seconds: float, workers: int, tell: Callable[[Verdict], None]
) -> list[Verdict]:
    """Runs the tests on all mutants, several at a time.

    Args:
        root: the repository's root.
        reach: which tests enter which functions.
        mutants: the changes.
        seconds: limit for the tests of one mutant, measured without the mutant.
        workers: number of mutants at a time.
        tell: called with each verdict as it comes.

    Returns:
        The verdicts, in the order in which they came.
    """
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    verdicts: list[Verdict] = []

    def work(folder: Path) -> None:
        for mutant in drain(waiting):
            verdict = judge(folder, reach, mutant, seconds)
            verdicts.append(verdict)
            tell(verdict)

    with tempfile.TemporaryDirectory(prefix="nnc-mutation-") as parent:
        folders = [Path(parent) / str(worker) for worker in range(workers)]
        for folder in folders:
            copy_tree(root, folder)
        threads = [threading.Thread(target=work, args=(folder,)) for folder in folders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return verdicts


def drain(waiting: queue.SimpleQueue[Mutant]) -> Iterator[Mutant]:
    """Yields the items of a queue until it is empty."""
    while True:
        try:
            yield waiting.get_nowait()
        except queue.Empty:
            return
