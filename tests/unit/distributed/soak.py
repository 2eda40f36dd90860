"""Many runs in which one rank fails at a random step: each must end within its bound. Started by hand, not in CI.

    python -m tests.unit.distributed.soak [--runs 200] [--seed 0] [--at-once 2]

A run draws the kind of failure, the number of ranks, the rank and the step, whether the step is compiled, and whether nnc's
launcher or mpiexec itself starts the processes. The failing rank writes the time down just before it fails; the bound counts from
there to the end of the launcher: 5 seconds, and the timeout of collectives where nothing but silence tells. No process may be left
over. A rank that is late by less than the timeout must not end the program. Runs that break a rule are printed with their output.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
TIMEOUT = 3  # seconds of a collective
GRACE = 5.0  # seconds in which all processes end once the failure can be known
PATIENCE = 90.0  # seconds after which a run that has not ended counts as a hang and is killed
STEPS = 30
KINDS = {
    "raise": 0,
    "exit": 0,
    "kill": 0,
    "other": 0,
    "stop": TIMEOUT,
    "late": TIMEOUT,
    "slow": None,
}  # None: no failure


@dataclass(frozen=True)
class Run:
    """One program: its failure, the rank and the step of it, and how the program is started."""

    kind: str
    ranks: int
    rank: int
    step: int
    compiled: bool
    launcher: bool

    @staticmethod
    def draw(rng: random.Random) -> Run:
        """A random one."""
        ranks = rng.choice((2, 3))
        return Run(
            rng.choice(list(KINDS)), ranks, rng.randrange(ranks), rng.randrange(STEPS), rng.random() < 0.5,
            rng.random() < 0.5,
        )  # fmt: skip

    def command(self) -> list[str]:
        """The command that starts it."""
        program = [str(Path(__file__)), "--inside", *map(str, astuple(self))]
        if self.launcher:
            return [sys.executable, "-m", "nnc.distributed", "run", "-n", str(self.ranks), *program]
        return [str(Path(sys.executable).parent / "mpiexec"), "-n", str(self.ranks), sys.executable, *program]


# -- within the processes ----------------------------------------------------------------------------------------------


def work(kind: str, failing: int, at: int, compiled: bool) -> None:
    """Sums over the ranks step by step; one of them fails."""
    import nnc  # noqa: PLC0415
    import nnc.numpy as nnp  # noqa: PLC0415
    from nnc.distributed import PartitionSpec, make_mesh, rank, shard_map, size  # noqa: PLC0415

    spec, mesh = PartitionSpec("i"), make_mesh((size(),), ("i",))

    def total(x: nnc.Array) -> nnc.Array:
        return nnc.fori_loop(0, 3, lambda i, t: t + nnc.psum(x.sum(), "i"), nnp.zeros(()))

    def most(x: nnc.Array) -> nnc.Array:
        return nnc.pmax(x.sum(), "i")

    wrap = nnc.compile if compiled else lambda f: f
    sums, maxima = (wrap(shard_map(f, mesh=mesh, in_specs=spec, out_specs=PartitionSpec())) for f in (total, most))
    x = nnp.ones(8 * size())
    for f in (sums, maxima):
        float(f(x))
    for step in range(STEPS):
        if step == at and rank() == failing:
            Path(os.environ["NNC_SOAK"]).write_text(repr(time.time()))
            fail(kind, lambda: maxima(x))
        assert float(sums(x)) == 3 * 8 * size()


def fail(kind: str, other: object) -> None:
    """Fails in one of the ways."""
    if kind == "raise":
        raise ValueError("a bad value")
    if kind == "exit":
        sys.exit(0)
    if kind in ("kill", "stop"):
        os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
    if kind == "other":
        assert callable(other)
        other()
    if kind in ("late", "slow"):
        time.sleep(600 if kind == "late" else TIMEOUT / 2)


# -- from outside ------------------------------------------------------------------------------------------------------


def judge(run: Run, folder: Path, number: int) -> tuple[float, str]:
    """Starts a run; returns the seconds from its failure to its end, and why it broke a rule."""
    clock = folder / f"{number}"
    mark = f"NNC_SOAK={clock}"
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "NNC_COLLECTIVE_TIMEOUT": str(TIMEOUT), "NNC_SOAK": str(clock)
    }  # fmt: skip
    output = folder / f"{number}.txt"
    with output.open("w") as file:
        process = subprocess.Popen(run.command(), cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT)
    hangs = False
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        hangs = True
    end = time.time()
    if not clock.exists():
        problem = "it never came to its failure"
        seconds = 0.0
    else:
        seconds = end - float(clock.read_text())
        problem = _problem(run, process.returncode, seconds)
    left = _left_over(mark)
    if left and not hangs:
        time.sleep(1)
        left = _left_over(mark)
        problem = problem or (f"{len(left)} processes are left over" if left else "")
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    if hangs:
        process.kill()
    process.wait()
    text = output.read_text()
    if hangs:
        problem = "it hangs"
    elif not problem and run.kind not in ("slow", "kill", "other") and f"rank {run.rank} of {run.ranks}" not in text:
        problem = "it does not name the rank"
    return seconds, f"{problem}\n{text}" if problem else ""


def _problem(run: Run, status: int | None, seconds: float) -> str:
    bound = KINDS[run.kind]
    if bound is None:
        return "" if status == 0 else f"it ends with status {status}, though the rank was late by less than the timeout"
    if status == 0:
        return "it ends with status 0"
    return f"it takes {seconds:.1f} s, more than {bound + GRACE}" if seconds > bound + GRACE else ""


def _left_over(mark: str) -> list[int]:
    """The processes that have the mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def main() -> int:
    """Runs all, prints the longest time of each kind; 1 where a run breaks a rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.unit.distributed.soak")
    parser.add_argument("--runs", type=int, default=200, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first run (default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=2, help="runs side by side (default: %(default)s)")
    options = parser.parse_args()
    runs = [Run.draw(random.Random(options.seed + i)) for i in range(options.runs)]
    counts, longest, broken = Counter[str](), defaultdict[str, float](float), 0
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(options.at_once) as pool:
        found = pool.map(judge, runs, [Path(name)] * len(runs), range(len(runs)))
        for i, (run, (seconds, problem)) in enumerate(zip(runs, found, strict=True)):
            counts[run.kind] += 1
            longest[run.kind] = max(longest[run.kind], seconds)
            broken += bool(problem)
            if problem:
                print(f"--- seed {options.seed + i}, {run}: {problem}", flush=True)
            if (i + 1) % 20 == 0:
                print(f"{i + 1} of {len(runs)} runs, {broken} broke a rule", flush=True)
    for kind in KINDS:
        print(f"{kind:6} {counts[kind]:5} runs, at most {longest[kind]:.1f} s from the failure to the end")
    print(f"{len(runs)} runs, {broken} broke a rule")
    return int(broken > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        kind, _, rank, step, compiled, _ = sys.argv[2:]
        work(kind, int(rank), int(step), compiled == "True")
    else:
        sys.exit(main())
