"""Where in the user's program something happened: the innermost frame that is not nnc's own."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import linecache
import os
import sys
from dataclasses import dataclass
from types import FrameType

import optree

_OWN, _OPTREE = (os.path.dirname(os.path.abspath(file)) + os.sep for file in (__file__, optree.__file__))
_FILES = frozenset({contextlib.__file__, copy.__file__, dataclasses.__file__, functools.__file__})


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
    """Whether `file` is part of nnc, or of the machinery between nnc and the user: contextlib, copy, dataclasses, functools,
    optree.
    """
    return file.startswith((_OWN, _OPTREE)) or file in _FILES


def is_ours(frame: FrameType) -> bool:
    """Whether a frame runs code of nnc: of its files, or made by it (the methods of its dataclasses)."""
    file = frame.f_code.co_filename
    return file.startswith(_OWN) or (file == "<string>" and str(frame.f_globals.get("__name__", "")).startswith("nnc."))


def user_source() -> SourceLine | None:
    """The innermost frame outside nnc on the present call stack; None at top level of an embedded interpreter."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not is_internal(code.co_filename) and not (code.co_filename == "<string>" and is_ours(frame)):
            return _known_line(code.co_filename, frame.f_lineno, code.co_qualname)
        frame = frame.f_back  # type: ignore[assignment]
    return None


_known_line = functools.lru_cache(maxsize=4096)(SourceLine)  # each line makes many nodes
