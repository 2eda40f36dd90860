"""Ends all processes where one fails: an error, an early end, a kill, a stop, or a collective that one of them never reaches.

MPI itself waits for ever for a process that raised an exception or ended early. So

- an exception that nobody catches ends all processes, after its traceback;
- a thread of each process watches. It ends all processes where a process of this machine is gone, where this process waits in a
  collective for one that has ended or that waits in another collective, and where a collective takes longer than the timeout.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import select
import sys
import sysconfig
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import numpy as np

from nnc.backends.mpi.board import TEXT, Board, Site
from nnc.base.options import collective_timeout
from nnc.base.source import SourceLine, is_internal, is_ours

_NNC = Path(__file__).parents[2]
_STARTERS = frozenset({"<frozen runpy>", *(str(_NNC / "distributed" / name) for name in ("__main__.py", "launch.py"))})
_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep
_PERIOD = 0.25  # seconds between two looks at the board
_CERTAIN = 1.0  # seconds that a process waits for one that ended, or waits elsewhere, before that counts as failure
_LIFE = 3.0  # seconds without a sign of life after which a process counts as stopped
_ABORT = 2  # seconds that MPI has to end all processes; then this one ends by itself, which its starter notices
_HEARD = 0.2  # seconds that the starter has to forward all lines, since it drops the rest when processes end
_TURN = 0.05  # seconds by which each process lets the one before it speak first


@dataclass(eq=False)
class ProcessGuard:
    """The watch of one process over all; made by `install`."""

    mpi: Any
    board: Board
    rank: int
    size: int
    timeout: float
    pid: int = field(default_factory=os.getpid)
    entered: int = -1
    since: float = 0.0

    # -- the end of this process ---------------------------------------------------------------------------------------

    def on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Ends all processes because of an exception that nobody caught."""
        if os.getpid() != self.pid:
            return
        line = _line_of(trace)
        first = (traceback.format_exception_only(error)[0].strip().splitlines() or [kind.__name__])[0]
        self.end_all(f"rank {self.rank} of {self.size} failed at {line}: {first}")

    def on_exit(self) -> None:
        """Notes that this process ends, so that none waits for it."""
        if os.getpid() == self.pid:
            self.board.mine["ended"] = 1

    def end_all(self, message: str) -> None:
        """Prints a message, and ends the processes of the program on all machines."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (AttributeError, OSError, ValueError):  # closed, or its reader is gone
                continue
        if not np.any(self.board.cells["told"]):
            self.board.mine["told"] = 1
            os.write(2, f"\nnnc.distributed: {message}\nnnc.distributed: all processes are ended.\n".encode())
        with open(os.devnull, "w") as nowhere:
            # by a thread of C, which needs no lock of Python
            faulthandler.dump_traceback_later(_ABORT, exit=True, file=nowhere)
            time.sleep(_HEARD)
            self.mpi.COMM_WORLD.Abort(1)

    # -- the watch over the others -------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Looks at the board until the process ends."""
        poll = select.poll()
        try:
            descriptor = self._next_process()
        except ProcessLookupError:
            descriptor = None
            self._check_gone(self._next_cell())
        if descriptor is not None:
            poll.register(descriptor, select.POLLIN)
        main = threading.main_thread().ident
        while True:
            if poll.poll(_PERIOD * 1000) and descriptor is not None:
                poll.unregister(descriptor)
                self._check_gone(self._next_cell())
            self._note(sys._current_frames().get(main or 0))
            problem = self._problem(time.monotonic())
            if problem:
                time.sleep(_TURN * self.board.own)
                self.end_all(problem)

    def _next_process(self) -> int | None:
        """Returns a descriptor that tells when the next process of this machine is gone, where the system has such."""
        if len(self.board.cells) == 1 or not hasattr(os, "pidfd_open"):
            return None
        try:
            return os.pidfd_open(int(self._next_cell()["pid"]))
        except ProcessLookupError:
            raise
        except OSError:  # an old system, or a sandbox
            return None

    def _next_cell(self) -> Any:
        return self.board.cells[(self.board.own + 1) % len(self.board.cells)]

    def _check_gone(self, cell: Any) -> None:
        if not cell["ended"]:
            gone = f"was killed, crashed or left by os._exit (process {cell['pid']})"
            self.end_all(f"{self._name(cell)} {gone}; it was at {_text(cell['at'])}")

    def _name(self, cell: Any) -> str:
        return f"rank {cell['rank']} of {self.size}"

    def _note(self, frame: FrameType | None) -> None:
        """Writes a sign of life on the board, and where the program is."""
        mine, line = self.board.mine, _user_line(frame) or _text(self.board.mine["at"])
        mine["beat"] = time.monotonic()
        mine["at"] = line.encode()[:TEXT]
        site = self.board.sites.get(int(mine["site"]))
        mine["waits"] = (site.describe(line) if site else f"a collective of {line}").encode()[:TEXT]

    def _problem(self, now: float) -> str | None:
        """Returns the reason for which this process waits in vain, if it does."""
        mine = self.board.mine
        entered, left = int(mine["entered"]), int(mine["left"])
        if entered == left or entered != self.entered:
            self.entered, self.since = entered, now
            return None
        waited = now - self.since
        if waited < _CERTAIN:
            return None
        site = self.board.sites.get(int(mine["site"]))
        others = [
            cell for i, cell in enumerate(self.board.cells) if i != self.board.own and _together(site, mine, cell)
        ]
        place = _text(mine["waits"])
        for cell in others if site else ():
            if cell["ended"] and cell["left"] < entered:
                exit = _text(cell["exit"])
                return f"{self._name(cell)} has ended{exit} and never reaches {place}, where rank {self.rank} waits"
            if (
                cell["entered"] == entered > cell["left"]
                and cell["site"] != mine["site"]
                and now - cell["beat"] < _LIFE
            ):
                other = _text(cell["waits"])
                return f"{self._name(cell)} is in {other}, and rank {self.rank} in {place}: they have gone apart"
        if self.timeout and waited > self.timeout:
            return self._late(others, entered, place, now)
        return None

    def _late(self, others: list[Any], entered: int, place: str, now: float) -> str:
        seconds = f"{self.timeout:g} s (NNC_COLLECTIVE_TIMEOUT)"
        lines = [
            f"{self._name(cell)} has not reached {place} within {seconds}; it is at {_text(cell['at'])}"
            + (f", and has shown no sign of life for {now - cell['beat']:.0f} s" if now - cell["beat"] > _LIFE else "")
            for cell in others
            if cell["entered"] < entered
        ]
        return "\n  ".join(lines) or f"rank {self.rank} of {self.size} waits in {place} for more than {seconds}"


def _together(site: Site | None, mine: Any, cell: Any) -> bool:
    return site is None or site.joins(int(mine["rank"]), int(cell["rank"]))


def install(mpi: Any, board: Board) -> ProcessGuard:
    """Begins to watch over the processes of this program."""
    everyone = mpi.COMM_WORLD
    guard = ProcessGuard(mpi, board, everyone.rank, everyone.size, collective_timeout())
    board.mine["rank"], board.mine["beat"] = everyone.rank, time.monotonic()
    before, leave = sys.excepthook, sys.exit

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        while trace is not None and trace.tb_frame.f_code.co_filename in _STARTERS:
            trace = trace.tb_next
        before(kind, error.with_traceback(trace), trace)
        guard.on_exception(kind, error, trace)

    def note_exit(status: Any = None, /) -> Any:
        board.mine["exit"] = f" by sys.exit({status!r}) at {_user_line(sys._getframe(1))}".encode()[:TEXT]
        leave(status)

    sys.excepthook = excepthook
    sys.exit = note_exit
    atexit.register(guard.on_exit)
    threading.Thread(target=guard.watch, name="nnc-guard", daemon=True).start()
    return guard


def _user_line(frame: FrameType | None) -> str:
    """Returns the innermost line of a stack that is the user's, neither of nnc nor of Python's library; empty where there is
    none.
    """
    while frame is not None:
        if _is_of_user(frame):
            return str(SourceLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname))
        frame = frame.f_back
    return ""


def _line_of(trace: TracebackType | None) -> str:
    """Returns the innermost line of a traceback that is the user's."""
    found = "an unknown line"
    while trace is not None:
        code = trace.tb_frame.f_code
        if _is_of_user(trace.tb_frame):
            found = str(SourceLine(code.co_filename, trace.tb_lineno, code.co_qualname))
        trace = trace.tb_next
    return found


def _is_of_user(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return not (is_internal(file) or is_ours(frame) or file.startswith((_LIBRARY, "<frozen")) or file in _STARTERS)


def _text(value: Any) -> str:
    return bytes(value).decode(errors="replace")
