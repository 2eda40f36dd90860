"""Paths that users give, looked at before anything is read or written, and errors of the file system in words."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nnc.errors import ArgumentError, ArgumentTypeError, FileAccessError, MissingFileError, user_error

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def path_to_read(where: str, path: Any) -> Path:
    """Returns `path` as the path of a file that is there and can be read to its end.

    Raises:
        MissingFileError: there is no such file, or it is a directory.
        FileAccessError: it is no regular file, such as a FIFO, which reading would wait for; or it cannot be looked at.
        ArgumentTypeError, ArgumentError: `path` is no path.
    """
    place = _as_path(where, path)
    with access(where, place):
        mode = os.stat(place).st_mode
    if stat.S_ISDIR(mode):
        raise user_error(MissingFileError, where, f"{_shown(place)} is a directory.", fix="name a file in it.")
    _check_regular(where, place, mode, "copy its bytes to a file, and read that.")
    return place


def path_to_write(where: str, path: Any) -> Path:
    """Returns `path` as the path of a file that can be made or replaced.

    Raises:
        MissingFileError: the folder is not there.
        ArgumentTypeError, ArgumentError: `path` is no path, or names a directory.
        FileAccessError: something other than a regular file is there, which a new file would replace.
    """
    place = _as_path(where, path)
    with access(where, place):
        if not place.parent.is_dir():
            fix = "make it first: path.parent.mkdir(parents=True)."
            raise user_error(MissingFileError, where, f"there is no directory {_shown(place.parent)}.", fix=fix)
        try:
            mode = os.stat(place).st_mode
        except FileNotFoundError:
            return place
    if stat.S_ISDIR(mode):
        raise user_error(ArgumentTypeError, where, f"{_shown(place)} is a directory.", fix="name a file in it.")
    _check_regular(where, place, mode, "name another file: a saved file would take its place.")
    return place


@contextmanager
def access(where: str, path: Path) -> Iterator[None]:
    """Words errors of the file system within the block."""
    try:
        yield
    except (FileAccessError, MissingFileError):
        raise
    except (FileNotFoundError, NotADirectoryError):
        fix = f"check the path; the working directory is {os.getcwd()}."
        raise user_error(MissingFileError, where, f"there is no file {_shown(path)}.", fix=fix) from None
    except OSError as error:
        reason = error.strerror or str(error)
        fix = "name a file that you may read and write, on a disk with room, with a name of at most 255 bytes."
        raise user_error(FileAccessError, where, f"the system refuses {_shown(path)}: {reason}.", fix=fix) from error


def _as_path(where: str, path: Any) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        problem = f"its argument path is a {type(path).__name__}, not a path."
        raise user_error(ArgumentTypeError, where, problem, fix=f'write {where}("model.safetensors", ...).')
    place = Path(path)
    try:
        encoded = os.fsencode(place)
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded:
        problem = f"{str(place)!r} is no path: it holds a NUL or half a character."
        raise user_error(ArgumentError, where, problem, fix="name a file with characters that the file system knows.")
    return place


def _check_regular(where: str, place: Path, mode: int, fix: str) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no file")
        raise user_error(FileAccessError, where, f"{_shown(place)} is {kind}, not a regular file.", fix=fix)


def _shown(place: Path) -> str:
    """Returns the path, cut where it is longer than any file's."""
    text = str(place)
    return text if len(text) <= 300 else f"{text[:200]}... ({len(text)} characters)"
