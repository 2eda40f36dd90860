"""Runs many programs, in a process of their own, so that one that dies or never ends is found, too."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from time import monotonic, sleep
from typing import Any

from nnc.errors import NncError
from nnc.graph import COMMANDS
from nnc.testing.fuzz.check import Finding, Unsupported, check
from nnc.testing.fuzz.generate import generate
from nnc.testing.fuzz.modes import FORWARD, MODES, Mode
from nnc.testing.fuzz.offer import Offer
from nnc.testing.fuzz.offers import all_offers
from nnc.testing.fuzz.patience import Patience, seconds_of
from nnc.testing.fuzz.program import Program, program_source, walk
from nnc.testing.fuzz.report import Report, as_test
from nnc.testing.fuzz.shrink import shrink
from nnc.testing.fuzz.subject import Subject

MODES_EACH = 3  # ways in which a program runs: to make one takes as long as to run it once or twice
PROGRAMS_EACH = 200  # programs of one process: damage that a defect does to memory is not carried on for ever
PATIENCE = 60.0  # seconds of processor time for one run; the slowest take ten
STARTING = 120.0  # seconds until a process has imported nnc, on a busy machine
SHRINKING = 60.0  # seconds for one finding
_SHRINKING = ", making smaller the "
_SHOWS_STACKS = hasattr(faulthandler, "register")  # not on Windows


@dataclass(frozen=True)
class Settings:
    """The settings of a campaign: which programs are made, and how they run."""

    seed: int = 0
    modes: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    shrinking: float = SHRINKING

    def chosen_modes(self) -> tuple[Mode, ...]:
        """The modes whose names were given; all where none was."""
        return tuple(mode for mode in MODES if not self.modes or mode.name in self.modes)

    def offers(self) -> tuple[list[Offer], list[Offer]]:
        """Everything to call, and the first calls of programs, in turn."""
        for name in self.imports:
            import_module(name)
        every = all_offers()
        return every, [o for o in every if o.name in self.commands] or every


def run(
    *, seconds: float | None = None, programs: int | None = None, seed: int = 0, modes: Sequence[str] = (),
    commands: Sequence[str] = (), imports: Sequence[str] = (), isolated: bool = True, findings: int = 10,
    shrinking: float = SHRINKING, tell: Callable[[str], object] = lambda text: None,
) -> Report:  # fmt: skip
    """Generates programs and compares their results in all modes with references.

    Args:
        seconds: how long to run; with `programs`, the limit that is reached first counts.
        programs: how many.
        seed: the seed of all that is drawn.
        modes: names of the modes to run in; all by default.
        commands: names of commands or functions that programs begin with; all by default, in turn.
        imports: names of modules that register commands of their own.
        isolated: whether programs run in a process of their own, so that a crash is a finding.
        findings: after how many findings to stop.
        shrinking: seconds to make a finding smaller.
        tell: takes each finding, as the source of a test.

    Returns:
        Counts, and the findings.

    Example:
        >>> nnc.testing.fuzz.run(programs=1, modes=["compiled"], commands=["add"], isolated=False).findings
        []
    """
    settings = Settings(seed, tuple(modes), tuple(commands), tuple(imports), shrinking)
    total = Report(seed)
    end = monotonic() + (seconds if seconds is not None else 1e9)
    most = programs if programs is not None else 1 << 60
    reports = _isolated(settings, most, end) if isolated else _in_process(settings, most, end)
    for report in reports:
        total.add(report)
        for text in report.findings:
            tell(text)
        if len(total.findings) >= findings:
            break
    return total


def known_commands() -> list[str]:
    """The names of all commands."""
    return list(COMMANDS)


def _in_process(settings: Settings, most: int, end: float) -> Iterator[Report]:
    every, first = settings.offers()
    for index in range(most):
        if monotonic() > end:
            return
        yield run_program(settings, index, every, first, lambda mode: None)


def run_program(
    settings: Settings, index: int, every: Sequence[Offer], first: Sequence[Offer], start: Callable[[str], object]
) -> Report:
    """Makes one program and runs it in some modes; says to `start` which one is next."""
    report, origin = Report(settings.seed, programs=1), origin_of(settings, index)
    start("")
    program = generate((settings.seed, index), every, first)
    subject = Subject.of(program)
    if subject is None:
        return report
    report.calls.update(program.calls())
    try:
        _ = subject.graph
    except NncError as error:
        report.findings.append(f"# {origin}: nnc refuses to trace it: {error}\n\n{program_source(program)}")
        return report
    seen: set[str] = set()
    for mode in _drawn_modes(settings, index, subject):
        start(mode.name)
        try:
            finding = check(subject, mode, seen, partial(start, mode.name))
        except Unsupported as error:
            report.unsupported[str(error)] += 1
            continue
        report.checks[mode.name] += 1
        if finding is not None:
            start(f"{mode.name}{_SHRINKING}program")
            report.findings.append(shrunk(program, mode, finding, settings.shrinking, origin))
            break
    report.commands.update(seen | {step.call for step in walk(program.body.steps)})
    return report


def _drawn_modes(settings: Settings, index: int, subject: Subject) -> list[Mode]:
    """Some of the modes that fit a program; where it has derivative rules of its own, all but one differentiate it."""
    fitting = [mode for mode in settings.chosen_modes() if mode.applies(subject)]
    rng = random.Random(f"{settings.seed} {index}")
    found = rng.sample(fitting, min(MODES_EACH, len(fitting)))
    deriving = [mode for mode in fitting if mode.name not in FORWARD]
    if any("custom_" in call for call in subject.program.calls()):
        found[1:] = rng.sample(deriving, min(MODES_EACH - 1, len(deriving))) or found[1:]
    return found


def origin_of(settings: Settings, index: int) -> str:
    """The name of a program."""
    return f"program {index} of seed {settings.seed}"


def shrunk(
    program: Program,
    mode: Mode,
    finding: Finding,
    seconds: float,
    origin: str,
    found: Callable[[Program], Finding | None] | None = None,
) -> str:
    """A finding as a test that is as small as can be."""

    def again(candidate: Program) -> Finding | None:
        try:
            subject = Subject.of(candidate)
            fits = subject is not None and bool(subject.results) and mode.applies(subject)
        except Exception:  # the smaller text is no program: a name or a shape does not fit any more
            return None
        return check(subject, mode) if subject is not None and fits else None

    find = found or again

    def shows(candidate: Program) -> bool:
        result = find(candidate)
        return result is not None and result.likeness == finding.likeness

    small = shrink(program, shows, seconds)
    subject = Subject.of(small)
    final = find(small)
    if subject is None or final is None:  # it does not come back: an earlier run in this process had a part in it
        whole = Subject.of(program)
        assert whole is not None
        return as_test(whole, mode, replace(finding, text=f"{finding.text} (not when it runs again)"), origin)
    return as_test(subject, mode, final, origin)


# -- processes -----------------------------------------------------------------------------------------------------------


def _begin(stacks: str, target: Callable[..., None], *args: Any) -> None:
    """Runs a function in the other process, which writes its stacks to a file when a signal asks for them."""
    with Path(stacks).open("w") as file:
        if _SHOWS_STACKS:
            faulthandler.register(signal.SIGUSR1, file=file, all_threads=True)
        target(*args)


def _serve(connection: Any, settings: Settings, start: int, stop: int) -> None:
    """Runs programs in the other process, and says which before each."""
    every, first = settings.offers()
    for index in range(start, stop):

        def tell(mode: str, index: int = index) -> None:
            connection.send((index, mode))

        connection.send(run_program(settings, index, every, first, tell))
    connection.send(None)


def _serve_one(connection: Any, program: Program, mode_name: str, settings: Settings) -> None:
    """Runs one program in one mode."""
    settings.offers()  # which imports the modules that register commands
    mode = next(mode for mode in MODES if mode.name == mode_name)
    subject = Subject.of(program)
    connection.send(check(subject, mode) if subject is not None and mode.applies(subject) else None)


class Process:
    """A process that sends messages until it ends."""

    def __init__(self, target: Callable[..., None], *args: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self._stacks = NamedTemporaryFile(prefix="nnc-fuzz-stacks-")  # noqa: SIM115  (closed with this object)
        self.process = context.Process(target=_begin, args=(self._stacks.name, target, other, *args), daemon=True)
        with _poisoned_memory():
            self.process.start()
        other.close()

    def receive(self, seconds: float) -> Any:
        """Waits for the next message.

        Args:
            seconds: of the process's own time.

        Raises:
            EOFError: the process has died.
            TimeoutError: it sent none in time; the error says where each thread is.
        """
        pid = self.process.pid or 0
        patience = Patience(seconds, lambda: seconds_of(pid))
        while not self.connection.poll(min(seconds, 1.0)):
            if patience.is_over():
                raise TimeoutError(f"no answer within {seconds:.0f} s\n{self._where()}")
        return self.connection.recv()

    def _where(self) -> str:
        """The stacks of all threads of the process."""
        if _SHOWS_STACKS and self.process.pid is not None:
            os.kill(self.process.pid, signal.SIGUSR1)
            sleep(1.0)  # it may wait for a lock, but its signal handler does not
        lines = Path(self._stacks.name).read_text(errors="replace").splitlines()
        return "\n".join(f"#   {line}" for line in lines)

    def end(self) -> int | None:
        """Ends the process; its exit code."""
        self.process.join(1.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
            return None
        return self.process.exitcode


class _poisoned_memory:  # noqa: N801
    """A block in which processes that are started fill memory that they allocate and free with bytes other than 0."""

    def __enter__(self) -> None:
        os.environ.setdefault("MALLOC_PERTURB_", "165")

    def __exit__(self, *error: object) -> None:
        os.environ.pop("MALLOC_PERTURB_", None)


def _isolated(settings: Settings, most: int, end: float) -> Iterator[Report]:
    index = 0
    while index < most and monotonic() < end:
        stop = min(index + PROGRAMS_EACH, most)
        process = Process(_serve, settings, index, stop)
        at, patience = (index, "starting"), STARTING
        try:
            while monotonic() < end:
                message = process.receive(patience)
                if message is None:
                    break
                if isinstance(message, Report):
                    yield message
                    index += 1
                else:
                    at = message
                patience = settings.shrinking + PATIENCE if _SHRINKING in at[1] else PATIENCE
        except (EOFError, ConnectionResetError):
            yield _died(settings, at, f"the process died (exit code {process.end()})")
            index = at[0] + 1
        except TimeoutError as error:
            yield _died(settings, at, str(error))
            index = at[0] + 1
        finally:
            process.process.kill() if process.process.is_alive() else None
            process.end()


def _died(settings: Settings, at: tuple[int, str], text: str) -> Report:
    """The finding for a program whose process died."""
    index, mode_name = at
    mode_name, _, shrinking = mode_name.partition(_SHRINKING)
    report = Report(settings.seed, programs=1)
    origin = origin_of(settings, index)
    mode = next((mode for mode in MODES if mode.name == mode_name), None)
    if mode is None:
        report.findings.append(f"# {origin}, {mode_name or 'while it was generated'}: {text}")
        return report
    every, first = settings.offers()
    program = generate((settings.seed, index), every, first)
    if shrinking:
        subject = Subject.of(program)
        finding = check(subject, mode) if subject is not None else None
        if subject is not None and finding is not None:
            report.findings.append(
                as_test(subject, mode, replace(finding, text=f"{finding.text} (when made smaller, {text})"), origin)
            )
        return report

    def find(candidate: Program) -> Finding | None:
        process = Process(_serve_one, candidate, mode_name, settings)
        try:
            found: Finding | None = process.receive(PATIENCE)
        except (EOFError, ConnectionResetError, TimeoutError):
            return Finding(mode_name, "crash", text)
        finally:
            process.end()
        return found

    report.findings.append(shrunk(program, mode, Finding(mode_name, "crash", text), settings.shrinking, origin, find))
    return report
