"""What one process finds out and the next can use: small values in files, found by what they depend on.

An entry is a JSON file named by a digest of its key. It is written beside its place and then moved there, so readers see all of
it or nothing, whatever crashes and however many processes write. It holds the whole key and a checksum: what is damaged, or is not
what was asked for, does not count.
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
from pathlib import Path
from typing import Any

_VERSION = 1  # of the form of the files; those of another lie elsewhere
_SUFFIX = ".json"


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

    def read(self, kind: str, key: Mapping[str, Any]) -> Any:
        """The value of an entry; None where there is none, or no sound one."""
        try:
            entry = json.loads(self._file(kind, key).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(entry, dict) or entry.get("key") != key:
            return None
        value = entry.get("value")
        return value if entry.get("check") == _digest([key, value]) else None

    def write(self, kind: str, key: Mapping[str, Any], value: Any) -> None:
        """Keeps a value; warns where the folder cannot be written."""
        place = self._file(kind, key)
        entry = {"key": key, "value": value, "check": _digest([key, value])}
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            _replace(place, json.dumps(entry).encode())
        except OSError as error:
            warnings.warn(f"nnc keeps nothing in {self.folder}: {error}", RuntimeWarning, stacklevel=2)

    def shrink(self, kind: str, most: int) -> None:
        """Removes the oldest entries of a kind until the others take at most so many bytes."""
        found = []
        for path in (self._root / kind).glob(f"*{_SUFFIX}"):
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
        for path in self._root.glob(f"*/*{_SUFFIX}"):
            with contextlib.suppress(OSError):  # another process removed it
                sizes.append(path.stat().st_size)
        return sizes

    @property
    def _root(self) -> Path:
        return self.folder / f"v{_VERSION}"

    def _file(self, kind: str, key: Mapping[str, Any]) -> Path:
        return self._root / kind / f"{_digest(key)}{_SUFFIX}"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _replace(place: Path, content: bytes) -> None:
    """Writes a file as a whole or not at all."""
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=place.stem, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
