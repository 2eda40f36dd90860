"""What one process finds out and the next can use: small values in files, found by what they depend on.

An entry is a file named by a digest of its key. It is written beside its place and then moved there, so readers see all of it or
nothing, whatever crashes and however many processes write. It holds the whole key and a checksum: what is damaged, or is not what
was asked for, does not count. Small values are JSON; bytes follow a line of JSON as they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

_VERSION = 2  # of the form of the files; those of another lie elsewhere
_VALUE, _BYTES = ".json", ".bin"  # endings of files


@dataclass(frozen=True, slots=True)
class Cache:
    """Entries of several kinds in a folder, which need not exist. Keys and values are what JSON can hold.

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
        return os.path.isdir(f"{self._root}/{kind}")

    def read(self, kind: str, key: Mapping[str, Any]) -> Any:
        """The value of an entry; None where there is none, or no sound one."""
        try:
            entry = json.loads(_content(self._file(kind, key, _VALUE)))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(entry, dict) or entry.get("key") != key:
            return None
        value = entry.get("value")
        return value if entry.get("check") == _digest([key, value]) else None

    def write(self, kind: str, key: Mapping[str, Any], value: Any) -> None:
        """Keeps a value; warns where the folder cannot be written."""
        entry = {"key": key, "value": value, "check": _digest([key, value])}
        self._keep(self._file(kind, key, _VALUE), json.dumps(entry).encode())

    def read_bytes(self, kind: str, key: Mapping[str, Any]) -> tuple[bytes, ...] | None:
        """The parts of an entry of bytes; None where there is none, or no sound one."""
        try:
            head, _, content = _content(self._file(kind, key, _BYTES)).partition(b"\n")
            entry = json.loads(head)
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(entry, dict) or entry.get("key") != key or entry.get("check") != _digest_of(content):
            return None
        ends = list(accumulate(entry["sizes"], initial=0))
        return tuple(content[begin:end] for begin, end in pairwise(ends))

    def write_bytes(self, kind: str, key: Mapping[str, Any], *parts: bytes) -> None:
        """Keeps bytes in several parts; warns where the folder cannot be written."""
        content = b"".join(parts)
        entry = {"key": key, "sizes": list(map(len, parts)), "check": _digest_of(content)}
        self._keep(self._file(kind, key, _BYTES), json.dumps(entry).encode() + b"\n" + content)

    def _keep(self, place: str, content: bytes) -> None:
        try:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            _replace(place, content)
        except OSError as error:
            warnings.warn(f"nnc keeps nothing in {self.folder}: {error}", RuntimeWarning, stacklevel=3)

    def shrink(self, kind: str, most: int) -> None:
        """Removes the oldest entries of a kind until the others take at most so many bytes."""
        found = []
        for path in self._entries(kind):
            with contextlib.suppress(OSError):  # another process removed it
                facts = path.stat()
                found.append((facts.st_mtime, facts.st_size, path))
        left = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if left <= most:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            left -= size

    def sizes(self) -> list[int]:
        """The bytes of each entry that this version reads."""
        sizes = []
        for path in self._entries("*"):
            with contextlib.suppress(OSError):  # another process removed it
                sizes.append(path.stat().st_size)
        return sizes

    @property
    def _root(self) -> str:
        return f"{self.folder}/v{_VERSION}"

    def _entries(self, kind: str) -> list[Path]:
        return [path for suffix in (_VALUE, _BYTES) for path in Path(self._root).glob(f"{kind}/*{suffix}")]

    def _file(self, kind: str, key: Mapping[str, Any], suffix: str) -> str:
        return f"{self._root}/{kind}/{_digest(key)}{suffix}"


@dataclass(frozen=True, slots=True)
class Entry:
    """The place of one small value in a cache.

    Example:
        >>> import tempfile
        >>> entry = Entry(Cache(Path(tempfile.mkdtemp())), "colours", {"of": "grass"})
        >>> entry.write("green")
        >>> entry.read()
        'green'
    """

    cache: Cache
    kind: str
    key: Mapping[str, Any]

    def read(self) -> Any:
        """What was kept; None where nothing was."""
        return self.cache.read(self.kind, self.key) if self.cache.holds(self.kind) else None

    def write(self, value: Any) -> None:
        """Keeps a value; warns where the folder cannot be written."""
        self.cache.write(self.kind, self.key, value)


def _digest(value: Any) -> str:
    return _digest_of(json.dumps(value, sort_keys=True).encode())


def _digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _content(place: str) -> bytes:
    with open(place, "rb") as file:
        return file.read()


def _replace(place: str, content: bytes) -> None:
    """Writes a file as a whole or not at all."""
    folder, name = os.path.split(place)
    handle, name = tempfile.mkstemp(dir=folder, prefix=os.path.splitext(name)[0], suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
