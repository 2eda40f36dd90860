"""A cache on disk that processes share: values and bytes in files, keyed by everything that they depend on.

An entry is a file named by a digest of its kind and key. Readers see all of it or nothing, even if processes crash or many
write at once (`nnc/base/files.py`). It holds its kind, the whole key, its content, and before them a checksum of all of that:
a file that is damaged, or has another key, is no entry.

    entry    [ SHA-256 of the rest | kind and key, a line of JSON | sizes of the parts, a line of JSON | parts ]

Entries become code that runs, so a folder or file that belongs to somebody else, or to which others can write, is not used; one
warning names it. The oldest entries of a kind make room for new ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from nnc.base.context import get_context
from nnc.base.files import ExposedError, Folder, private_folder
from nnc.base.source import SourceLine, user_source

_VERSION = "v3"  # of the form of the files; entries of another version lie elsewhere
_ENDING = ".bin"
_CHECK_BYTES = hashlib.sha256().digest_size
_BLOCK = 4096  # bytes; a small file takes as many on disk
_LOOKS = 16  # times that a folder is looked through while the allowed bytes are written, on average
# Bytes of all entries of a kind. Object files have 10 KB, programs 100 KB, others one block: some 10,000, 5,000 and 1,000 entries.
MOST_BYTES: Mapping[str, int] = MappingProxyType({"objects": 1 << 28, "programs": 1 << 29})
_MOST_BYTES_ELSE = 1 << 22


class Cache(NamedTuple):
    """Entries of several kinds in a folder, which need not exist. Keys and values are JSON values.

    Example:
        >>> import tempfile
        >>> cache = Cache(Path(tempfile.mkdtemp()))
        >>> cache.write("colours", {"of": "grass"}, "green")
        >>> cache.read("colours", {"of": "grass"}), cache.read("colours", {"of": "snow"})
        ('green', None)
    """

    folder: Path

    def holds(self, kind: str) -> bool:
        """Whether something of a kind was kept."""
        return os.path.isdir(f"{self.folder}/{_VERSION}/{kind}")

    def read(self, kind: str, key: Mapping[str, Any]) -> Any:
        """Returns the value of an entry; None where there is none, or no sound one."""
        parts = self.read_bytes(kind, key)
        return json.loads(parts[0]) if parts is not None else None

    def write(self, kind: str, key: Mapping[str, Any], value: Any) -> None:
        """Keeps a value; warns where the folder cannot be written."""
        self.write_bytes(kind, key, json.dumps(value).encode())

    def read_bytes(self, kind: str, key: Mapping[str, Any]) -> tuple[bytes, ...] | None:
        """Returns the parts of an entry; None where there is none, or no sound one."""
        title = _title(kind, key)
        try:
            with self._open(kind) as folder:
                return decode(folder.read(_name(title)), title)
        except OSError:
            return None
        except ExposedError as error:
            self._warn(error)
            return None

    def write_bytes(self, kind: str, key: Mapping[str, Any], *parts: bytes) -> None:
        """Keeps bytes in several parts; warns where the folder cannot be written."""
        title = _title(kind, key)
        content = encode(title, parts)
        try:
            with self._open(kind, make=True) as folder:
                folder.write(_name(title), content)
                if _is_time_to_look(_name(title), _on_disk(len(content)), most_bytes(kind)):
                    _shrink(folder, most_bytes(kind))
        except OSError as error:
            self._warn_once(error, f"nnc keeps nothing in {self.folder}: {error}")
        except ExposedError as error:
            self._warn(error)

    def sizes(self) -> list[int]:
        """Returns the bytes of each entry that this version reads."""
        sizes = []
        for path in Path(self.folder, _VERSION).glob(f"*/*{_ENDING}"):
            with contextlib.suppress(OSError):  # another process removed it
                sizes.append(path.stat().st_size)
        return sizes

    def _open(self, kind: str, *, make: bool = False) -> AbstractContextManager[Folder]:
        return private_folder(str(self.folder), (_VERSION, kind), make=make)

    def _warn(self, error: ExposedError) -> None:
        self._warn_once(
            error,
            f"nnc does not use its cache in {self.folder}: {error.problem}\n"
            f"Fix: {error.fix}, or set NNC_CACHE_DIR to a folder of your own.",
        )

    def _warn_once(self, error: Exception, text: str) -> None:
        """Warns of the first error of a kind in this folder."""
        known = _warned(self)
        if type(error) not in known:
            known.add(type(error))
            source = get_context().source or user_source() or SourceLine("<unknown>", 0, "<unknown>")
            warnings.warn_explicit(text, RuntimeWarning, source.file, source.line)


class CacheEntry(NamedTuple):
    """The place of one small value in a cache.

    Example:
        >>> import tempfile
        >>> entry = CacheEntry(Cache(Path(tempfile.mkdtemp())), "colours", {"of": "grass"})
        >>> entry.write("green")
        >>> entry.read()
        'green'
    """

    cache: Cache
    kind: str
    key: Mapping[str, Any]

    def read(self) -> Any:
        """Returns the content that was kept; None where nothing was."""
        return self.cache.read(self.kind, self.key) if self.cache.holds(self.kind) else None

    def write(self, value: Any) -> None:
        """Keeps a value; warns where the folder cannot be written."""
        self.cache.write(self.kind, self.key, value)


# -- the form of an entry ----------------------------------------------------------------------------------------------


def encode(title: bytes, parts: tuple[bytes, ...]) -> bytes:
    """Returns the content of an entry's file."""
    body = b"".join([title, b"\n", json.dumps(list(map(len, parts))).encode(), b"\n", *parts])
    return hashlib.sha256(body).digest() + body


def decode(content: bytes, title: bytes) -> tuple[bytes, ...] | None:
    """Returns the parts of an entry; None where it is damaged, or has another title."""
    check, body = content[:_CHECK_BYTES], memoryview(content)[_CHECK_BYTES:]
    if hashlib.sha256(body).digest() != check or not content.startswith(title + b"\n", _CHECK_BYTES):
        return None
    begin = _CHECK_BYTES + len(title) + 1
    end = content.index(b"\n", begin)
    ends = accumulate(json.loads(content[begin:end]), initial=end + 1)
    return tuple(content[first:last] for first, last in pairwise(ends))


def _title(kind: str, key: Mapping[str, Any]) -> bytes:
    return json.dumps([kind, key], sort_keys=True).encode()


def _name(title: bytes) -> str:
    return hashlib.sha256(title).hexdigest() + _ENDING


# -- how much there is -------------------------------------------------------------------------------------------------


def most_bytes(kind: str) -> int:
    """Returns the most bytes that all entries of a kind may take on disk."""
    return MOST_BYTES.get(kind, _MOST_BYTES_ELSE)


def _is_time_to_look(name: str, nbytes: int, most: int) -> bool:
    """Whether to look through the folder after an entry was written: in the share of cases that its bytes have in those between
    two looks. To look takes 0.5 s where there are 54,000 files, so a process does not begin with it; the digest draws the lot.
    """
    return int(name[:8], 16) * most < (nbytes * _LOOKS) << 32


def _shrink(folder: Folder, most: int) -> None:
    """Removes files that killed writers left, and the oldest entries until the others take at most so many bytes."""
    folder.remove_left_over()
    found = sorted(_ages(folder))
    left = sum(nbytes for _, nbytes, _ in found)
    for _, nbytes, name in found:
        if left <= most:
            break
        with contextlib.suppress(OSError):
            folder.remove(name)
        left -= nbytes


def _ages(folder: Folder) -> Iterator[tuple[float, int, str]]:
    """The time at which each entry was written, its bytes on disk, and its name."""
    for name in folder.names():
        if name.endswith(_ENDING):
            with contextlib.suppress(OSError):  # another process removed it
                status = folder.status(name)
                yield status.st_mtime, _on_disk(status.st_size), name


def _on_disk(nbytes: int) -> int:
    return -(-nbytes // _BLOCK) * _BLOCK


@cache
def _warned(cache: Cache) -> set[type[Exception]]:
    """Returns the kinds of errors that this process has warned of."""
    return set()
