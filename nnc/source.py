"""Where in the user's program something happened: the innermost frame that is not nnc's own."""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import sys
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

import optree

ErrorT = TypeVar("ErrorT", bound=BaseException)
_FOLDERS = tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in (__file__, optree.__file__))
_FILES = frozenset({contextlib.__file__, functools.__file__})


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's program.

    Example:
        >>> str(SourceLine("train.py", 41, "loss"))
        'train.py:41 in loss'
    """

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        """The line itself, stripped; empty where the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{short_path(self.file)}:{self.line} in {self.function}"

    def describe(self) -> str:
        """The place and, where it can be read, the line."""
        return f"{self}:   {self.text}" if self.text else str(self)


def short_path(path: str) -> str:
    """`path` relative to the working directory where that is shorter."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive on Windows
        return path
    return relative if len(relative) < len(path) else path


@functools.lru_cache(maxsize=4096)
def is_internal(file: str) -> bool:
    """Whether `file` is part of nnc, or of the machinery between nnc and the user (contextlib, functools, optree)."""
    return file.startswith(_FOLDERS) or file in _FILES


def user_source() -> SourceLine | None:
    """The innermost frame outside nnc on the present call stack; None at top level of an embedded interpreter."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not is_internal(code.co_filename):
            generated = code.co_filename == "<string>" and frame.f_globals.get("__name__", "").startswith("nnc.")
            if not generated:
                return _known_line(code.co_filename, frame.f_lineno, code.co_qualname)
        frame = frame.f_back  # type: ignore[assignment]
    return None


_known_line = functools.lru_cache(maxsize=4096)(SourceLine)  # each line makes many nodes


def prune_traceback(error: ErrorT) -> ErrorT:
    """Drops nnc's own frames from the traceback of `error`, so that it ends in the user's line."""
    frames: list[TracebackType] = []
    traceback = error.__traceback__
    while traceback is not None:
        if not is_internal(traceback.tb_frame.f_code.co_filename):
            frames.append(traceback)
        traceback = traceback.tb_next
    pruned: TracebackType | None = None
    for frame in reversed(frames):
        pruned = TracebackType(pruned, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return error.with_traceback(pruned)
