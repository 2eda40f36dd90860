"""Processes of which one fails, started by `python -m nnc.distributed run` and by mpiexec: all kinds run at the same time."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from nnc.distributed.__main__ import main

ROOT = Path(__file__).parents[3]
FAILING = Path(__file__).parent / "failing.py"
MPIEXEC = Path(sys.executable).parent / "mpiexec"
TIMEOUT = 6  # seconds of a collective; eleven processes on two cores may come seconds late
needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or not MPIEXEC.exists(), reason="no MPI is installed beside Python"
)
RUN = [sys.executable, "-m", "nnc.distributed", "run", "-n"]


@dataclass
class Ended:
    status: int
    text: str
    mark: str

    def left_over(self) -> list[str]:
        """The processes that still have the mark of this run in their environment."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_text())
            except OSError:
                continue
        return found


CASES = {
    "ends": [*RUN, "2", str(FAILING), "none", "compiled"],
    "raises": [str(MPIEXEC), "-n", "2", sys.executable, str(FAILING), "raise"],
    "exits": [str(MPIEXEC), "-n", "2", sys.executable, str(FAILING), "exit", "compiled"],
    "killed": [*RUN, "3", "--restarts", "1", "--min-ranks", "1", str(FAILING), "kill"],
    "stopped": [str(MPIEXEC), "-n", "2", sys.executable, str(FAILING), "stop", "compiled"],
}


@pytest.fixture(scope="module")
def ended() -> dict[str, Ended]:
    """The outputs of all cases, which run side by side."""
    running = {}
    for name, command in CASES.items():
        environment = {
            **os.environ, "PYTHONPATH": str(ROOT), "NNC_COLLECTIVE_TIMEOUT": str(TIMEOUT), "NNC_MARK": f"{name}-{os.getpid()}"
        }  # fmt: skip
        running[name] = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    end, found = time.monotonic() + 100, {}
    for name, process in running.items():
        try:
            text, _ = process.communicate(timeout=max(1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            text = "it hangs: " + process.communicate()[0]
        found[name] = Ended(process.returncode, text, f"NNC_MARK={name}-{os.getpid()}")
    return found


@pytest.mark.slow
@needs_mpi
def test_a_program_runs_on_the_ranks_asked_for_and_its_status_is_0(ended: dict[str, Ended]) -> None:
    assert ended["ends"].status == 0, ended["ends"].text
    assert "rank 0 is done" in ended["ends"].text and "rank 1 is done" in ended["ends"].text


@needs_mpi
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", ("ValueError: a bad value", "rank 1 of 2 failed at", "failing.py:19 in fail")),
        ("exits", ("rank 1 of 2 has ended by sys.exit(0)", "failing.py:21 in fail", "never reaches psum of", "in total")),
        ("killed", ("Killed", "restart 1 of 1")),  # MPICH may end the others before they name the rank
        ("stopped", ("rank 1 of 2 has not reached psum of", "in total", "no sign of life")),
    ],
)  # fmt: skip
def test_a_failure_of_one_rank_ends_all_and_names_the_rank_and_the_line(
    ended: dict[str, Ended], name: str, words: tuple[str, ...]
) -> None:
    found = ended[name]
    assert found.status != 0
    for word in words:
        assert word in found.text, found.text
    assert name == "killed" or found.text.count("all processes are ended") == 1
    assert "is done" not in found.text


@needs_mpi
def test_no_process_is_left_over(ended: dict[str, Ended]) -> None:
    for _ in range(50):
        left = [command for found in ended.values() for command in found.left_over()]
        if not left:
            return
        time.sleep(0.1)
    assert not left


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "-n", "2", "nowhere.py"], "there is no file nowhere.py"),
        (["run", "-n", "0", str(FAILING)], "1 <= min-ranks <= n"),
        (["run", "-n", "2", "--min-ranks", "3", str(FAILING)], "1 <= min-ranks <= n"),
        (["run", "-n", "2", "--restarts", "-1", str(FAILING)], "is negative"),
        (["run", str(FAILING)], "required: -n"),
    ],
)
def test_wrong_arguments_are_worded(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert words in capsys.readouterr().err
