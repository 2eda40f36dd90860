"""Where in the user's program something happened.

The user's frame is the innermost one that runs neither code of nnc, nor of the standard library, nor of an installed package: a
mistake with `np.linalg.norm(x)` stands where that is written, not in NumPy. Where no such frame exists, an installed package
is the user, and its innermost frame counts.
"""

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

# this file stands one folder below the package's
_OWN, _OPTREE = (
    os.path.dirname(os.path.abspath(file)) + os.sep for file in (os.path.dirname(__file__), optree.__file__)
)
_STANDARD = os.path.dirname(os.__file__) + os.sep
_PACKAGES = tuple(f"{os.sep}{folder}{os.sep}" for folder in ("site-packages", "dist-packages"))
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
        """Returns the place and, where it can be read, the line."""
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


@functools.lru_cache(maxsize=4096)
def is_installed(file: str) -> bool:
    """Whether `file` is part of nnc, of the standard library or of an installed package.

    Example:
        >>> is_installed("train.py"), is_installed(os.__file__), is_installed("/usr/lib/python3/dist-packages/numpy/ma/core.py")
        (False, True, True)
    """
    return is_internal(file) or file.startswith((_STANDARD, "<frozen ")) or any(part in file for part in _PACKAGES)


def is_ours(frame: FrameType) -> bool:
    """Whether a frame runs code of nnc: of its files, or made by it (the methods of its dataclasses)."""
    file = frame.f_code.co_filename
    return file.startswith(_OWN) or (file == "<string>" and str(frame.f_globals.get("__name__", "")).startswith("nnc."))


def user_source() -> SourceLine | None:
    """Returns the user's line on the present call stack; None at top level of an embedded interpreter."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_installed(frame.f_code.co_filename):  # each command of a trace runs this
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename == "<string>":
        frame = user_frame(sys._getframe(1))
    return None if frame is None else _known_line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)


def user_frame(innermost: FrameType) -> FrameType | None:
    """Returns the user's frame among a frame and its callers."""
    frame: FrameType | None = innermost
    installed = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_installed(file):
            if file != "<string>" or not is_ours(frame):
                return frame
        elif installed is None and not is_internal(file):
            installed = frame
        frame = frame.f_back
    return installed


_known_line = functools.lru_cache(maxsize=4096)(SourceLine)  # each line makes many nodes
