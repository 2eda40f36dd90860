"""Folders and files that nobody else can write to, and files that appear whole or not at all.

A folder is opened first and looked at afterwards, through its descriptor, so nobody can exchange it in between. Below the first
folder symbolic links are not followed.

A file is written to a *part* beside its place, `.name.….part`, and moved there. The part is locked for as long as its writer lives,
so a part that can be locked is left over from a writer that was killed: `remove_left_over` removes it. Where the system has no such
locks (Windows, some network file systems), it stays.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_PART = re.compile(r"\..+\.[0-9a-f]{8}\.part")  # names of files that are being written
_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600  # modes of files and folders made here
_NAME = 50  # characters of a file's name that the name of its part has; the system allows 255 bytes
_HAS_OWNERS = hasattr(os, "geteuid")
_OPENS_FOLDERS = os.open in os.supports_dir_fd  # False on Windows, where folders are known by their paths alone
_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_FILE = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # opening a FIFO waits for nobody
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)


class ExposedError(Exception):
    """Somebody else can write to a folder or file."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.problem, self.fix = problem, fix


class Folder(NamedTuple):
    """An open folder: all that is done with it concerns this very folder, even if another one takes its place.

    Example:
        >>> import tempfile
        >>> with private_folder(tempfile.mkdtemp(), ["words"], make=True) as folder:
        ...     folder.write("greeting", b"hello")
        ...     folder.read("greeting")
        b'hello'
    """

    path: str
    descriptor: int | None  # None where the system opens no folders

    def open(self, name: str, flags: int, mode: int = _PRIVATE_FILE) -> int:
        """Returns a descriptor of a file in the folder."""
        return os.open(self._place(name), flags | _FILE, mode, dir_fd=self.descriptor)

    def read(self, name: str) -> bytes:
        """Returns the content of a file.

        Raises:
            ExposedError: somebody else can write to it.
            OSError: there is no such file, or it is no regular file.
        """
        descriptor = self.open(name, os.O_RDONLY | _AT_ONCE)
        try:
            check_private(descriptor, os.path.join(self.path, name))
            with open(descriptor, "rb", buffering=0, closefd=False) as file:
                return file.readall()
        finally:
            os.close(descriptor)

    def write(self, name: str, content: bytes) -> None:
        """Writes a file, which appears whole or not at all."""
        with self.replacing(name) as (file, _):
            file.write(content)

    @contextmanager
    def replacing(self, name: str, mode: int = _PRIVATE_FILE) -> Iterator[tuple[BinaryIO, str]]:
        """A block that writes a file, which takes its place when the block ends without an error. It gets the open file, and where
        that lies until then.
        """
        part, descriptor = self._make_part(name, mode)
        try:
            with open(descriptor, "wb") as file:
                yield file, os.path.join(self.path, part)
                file.flush()
                if fcntl is not None:  # elsewhere open files cannot be moved
                    self._move(part, name)
            if fcntl is None:
                self._move(part, name)
        except BaseException:
            with contextlib.suppress(OSError):
                self.remove(part)
            raise

    def _make_part(self, name: str, mode: int) -> tuple[str, int]:
        """Returns a new file beside a place, which is locked."""
        while True:
            part = f".{name[:_NAME]}.{os.urandom(4).hex()}.part"
            descriptor = self.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            try:
                is_ours = fcntl is None or (_lock(descriptor) and self._is_at(part, descriptor))
            except OSError:  # this file system has no locks, so nobody removes the part either
                is_ours = True
            if is_ours:
                return part, descriptor
            os.close(descriptor)  # another writer took it for left over before it was locked

    def _is_at(self, name: str, descriptor: int) -> bool:
        """Whether a name still leads to an open file."""
        try:
            return os.path.samestat(self.status(name), os.fstat(descriptor))
        except FileNotFoundError:
            return False

    def remove_left_over(self) -> None:
        """Removes the parts of writers that were killed."""
        if fcntl is None:
            return
        for name in filter(_PART.fullmatch, self.names()):
            with contextlib.suppress(OSError):  # somebody else's, or removed meanwhile
                descriptor = self.open(name, os.O_RDWR | _AT_ONCE)
                try:
                    if _lock(descriptor) and self._is_at(name, descriptor):
                        self.remove(name)
                finally:
                    os.close(descriptor)

    def names(self) -> list[str]:
        """Returns the names of all that is in the folder."""
        return os.listdir(self.path if self.descriptor is None else self.descriptor)

    def status(self, name: str) -> os.stat_result:
        """Returns the status of a file: its size, owner, mode and times."""
        return os.stat(self._place(name), dir_fd=self.descriptor, follow_symlinks=False)

    def remove(self, name: str) -> None:
        """Removes a file."""
        os.unlink(self._place(name), dir_fd=self.descriptor)

    def _move(self, source: str, target: str) -> None:
        source, target = self._place(source), self._place(target)
        os.replace(source, target, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def _place(self, name: str) -> str:
        return name if self.descriptor is not None else os.path.join(self.path, name)


@contextmanager
def private_folder(path: str, below: Sequence[str] = (), *, make: bool = False) -> Iterator[Folder]:
    """Opens a folder for the duration of a block. The folder, and those on the way to it, must belong to this user, and nobody
    else may be able to write to them.

    Args:
        path: the first folder to check.
        below: the names of the folders from there on, each within the one before.
        make: whether missing folders are made; nobody else can look into them.

    Raises:
        ExposedError: somebody else can write to one of them.
        OSError: there is no such folder, or it cannot be made.
    """
    if make:
        _make_folder(path)
    if not _OPENS_FOLDERS:
        for name in below:
            path = os.path.join(path, name)
            if make:
                _make_folder(path)
        yield Folder(path, None)
        return
    descriptor = os.open(path, os.O_RDONLY | _FOLDER)
    try:
        check_private(descriptor, path)
        for name in below:
            path = os.path.join(path, name)
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, _PRIVATE_FOLDER, dir_fd=descriptor)
            inner = os.open(name, os.O_RDONLY | _FOLDER | _NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
            check_private(descriptor, path)
        yield Folder(path, descriptor)
    finally:
        os.close(descriptor)


def check_private(descriptor: int, path: str) -> None:
    """Checks that an open file or folder belongs to this user, and that nobody else can write to it.

    Raises:
        ExposedError: it belongs to somebody else, or somebody else can write to it.
    """
    if not _HAS_OWNERS:  # Windows: folders of a user's profile inherit private permissions
        return
    status, user = os.fstat(descriptor), os.geteuid()
    if status.st_uid != user:
        raise ExposedError(
            f"{path} belongs to user {status.st_uid}, and this process runs as user {user}.", f"remove {path}"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ExposedError(
            f"others than its owner can write to {path} (mode {stat.S_IMODE(status.st_mode):04o}).",
            f"run chmod -R go-w {path} if nobody else wrote to it, else remove it",
        )


def _make_folder(path: str) -> None:
    """Makes a folder, and those above it as the system usually does."""
    os.makedirs(os.path.dirname(path) or os.curdir, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, _PRIVATE_FOLDER)


def _lock(descriptor: int) -> bool:
    """Locks a file for as long as it is open; returns False where another process holds the lock.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
