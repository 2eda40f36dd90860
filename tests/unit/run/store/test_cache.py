"""Entries of caches: whole or absent, ours alone, and not too many."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.cpu.compiler.engine import Engine
from nnc.backends.cpu.compiler.object_cache import Objects
from nnc.backends.loaded import choose_kernel, compiler
from nnc.base.options import Options
from nnc.compiled.pipeline import lower
from nnc.run.store import cache as cache_module
from nnc.run.store.cache import Cache, CacheEntry, decode, encode, most_bytes

KEY = {"of": "grass", "numbers": [1, 2.5, None]}
needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="files cannot be given to another user"
)
needs_modes = pytest.mark.skipif(sys.platform == "win32", reason="there are no modes of files")


def only_file(folder: Path) -> Path:
    (file,) = folder.rglob("*.bin")
    return file


def test_values_and_bytes_come_back_by_kind_and_key(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.write("colours", KEY, {"is": ["green", 1.5, None]})
    cache.write_bytes("shapes", KEY, b"", b"\n\0", b"round")
    assert cache.read("colours", KEY) == {"is": ["green", 1.5, None]}
    assert cache.read_bytes("shapes", KEY) == (b"", b"\n\0", b"round")
    assert cache.read_bytes("colours", {**KEY, "of": "snow"}) is None
    assert cache.read_bytes("colours", {"of": "grass"}) is None and cache.read_bytes("sizes", KEY) is None
    assert cache.read("colours", dict(reversed(KEY.items()))) is not None  # in any order of names


def test_an_entry_that_was_moved_to_the_place_of_another_is_none(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.write("colours", {"of": "snow"}, "white")
    (snow,) = tmp_path.rglob("*.bin")
    cache.write("colours", {"of": "grass"}, "green")
    cache.write("shapes", {"of": "grass"}, "thin")
    (shape,) = tmp_path.rglob("shapes/*.bin")
    (grass,) = (path for path in tmp_path.rglob("colours/*.bin") if path != snow)
    for other in (snow, shape):
        grass.write_bytes(other.read_bytes())
        assert cache.read("colours", {"of": "grass"}) is None


def test_a_title_is_compared_to_its_last_byte() -> None:
    whole = encode(b'["colours", {"i": 10}]', (b"green",))
    for other in (
        b'["colours", {"i": 10}',
        b'["colours", {"i": 10}] ',
        b'["colours", {"i": 11}]',
        b'["colours", {"i": 1',
        b"",
    ):
        assert decode(whole, other) is None


# -- damage ------------------------------------------------------------------------------------------------------------


def test_an_entry_with_any_byte_changed_cut_or_added_is_none() -> None:
    title, parts = b'["colours", {"of": "grass"}]', (b"green", b"", b"\n[1]\n")
    whole = encode(title, parts)
    assert decode(whole, title) == parts
    for i in range(len(whole)):
        for change in (1, 0x80, 0xFF):
            damaged = bytearray(whole)
            damaged[i] ^= change
            assert decode(bytes(damaged), title) is None
        assert decode(whole[:i], title) is None
    assert decode(whole + b"\0", title) is None and decode(b"", title) is None


def keep_object(folder: Path) -> Callable[[], Any]:
    """Keeps an object file; returns a function that reads it again: how many texts were compiled for that."""
    engine = Engine()
    text = "define i64 @KERNEL(ptr %x) {\n  ret i64 7\n}\n"
    code = Objects(engine, folder).compile(text)

    def again() -> int:
        objects = Objects(engine, folder)
        assert objects.compile(text) == code
        return objects.compiled

    return again


def keep_program(folder: Path) -> Callable[[], Any]:
    graph = nnc.make_graph(lambda x: nnp.sum(nnp.tanh(x) * x))(np.ones(3, np.float32))

    def again() -> int:
        cache = cache_module.Cache
        reads = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("nnc.run.store.stored.files_digest", lambda kind: "these files")
            patch.setattr(cache, "write_bytes", lambda self, kind, key, *parts: reads.append(kind))
            program = lower(graph, Options(cache_folder=folder), choose_kernel, compiler())
        assert abs(float(program.run([np.ones(3, np.float32)])[0]) - 3 * np.tanh(1)) < 1e-5
        return reads.count("programs")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nnc.run.store.stored.files_digest", lambda kind: "these files")
        lower(graph, Options(cache_folder=folder), choose_kernel, compiler())
    return again


def keep_value(folder: Path) -> Callable[[], Any]:
    """Keeps a value as arenas and choices of kernels are kept."""
    CacheEntry(Cache(folder), "arenas", KEY).write(1 << 20)

    def again() -> int:
        found = CacheEntry(Cache(folder), "arenas", KEY).read()
        assert found in (None, 1 << 20)
        return int(found is None)

    return again


@pytest.mark.parametrize("keep", [keep_object, keep_program, keep_value], ids=lambda keep: keep.__name__)
def test_no_user_of_a_cache_takes_a_damaged_entry(tmp_path: Path, keep: Callable[[Path], Callable[[], Any]]) -> None:
    missing = keep(tmp_path)
    assert missing() == 0
    file = next(tmp_path.rglob("programs/*.bin"), None) or only_file(tmp_path)
    whole = file.read_bytes()
    fields = [whole.index(b"\n", 32) - 2, whole.index(b"\n", 32) + 2]  # the end of the key, a size
    for i in sorted({0, 31, 32, *fields, *range(33, len(whole), max(len(whole) // 12, 1)), len(whole) - 1}):
        file.write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
        assert missing() == 1
        file.write_bytes(whole)
    assert missing() == 0


RUN = """
import sys, nnc, nnc.numpy as nnp, numpy as np
f = nnc.compile(nnc.grad(lambda x: nnp.sum(nnp.tanh(x) @ nnp.ones((3, 2)))))
assert np.allclose(f(np.full((4, 3), 0.5, np.float32)), 2 / np.cosh(0.5) ** 2)
"""


@pytest.mark.unguarded
def test_a_process_that_finds_nothing_but_damaged_entries_computes_the_same(tmp_path: Path) -> None:
    environment = {**os.environ, "NNC_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-W", "error", "-c", RUN], env=environment, check=True)
    files = list(tmp_path.rglob("*.bin"))
    assert {file.parent.name for file in files} >= {"objects", "programs"}
    before = {file: file.read_bytes() for file in files}
    for file, whole in before.items():
        at = whole.index(b"\n", whole.index(b"\n", 32) + 1) - 2  # the last digit of the sizes
        file.write_bytes(whole[:at] + b"%d" % ((whole[at] - 48 + 1) % 10) + whole[at + 1 :])
    subprocess.run([sys.executable, "-W", "error", "-c", RUN], env=environment, check=True)
    assert {file: file.read_bytes() for file in files} == before  # sound ones have taken their places


# -- folders of others -------------------------------------------------------------------------------------------------


@needs_modes
def test_folders_and_files_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Cache(tmp_path / "a" / "b").write("colours", KEY, "green")
    finally:
        os.umask(before)
    made = [tmp_path / "a" / "b", *(tmp_path / "a" / "b").rglob("*")]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700, 0o700, 0o700, 0o600]


def give_away(path: Path) -> None:
    os.chown(path, 4321, -1)


def open_to_group(path: Path) -> None:
    path.chmod(path.stat().st_mode | stat.S_IWGRP)


def open_to_all(path: Path) -> None:
    path.chmod(path.stat().st_mode | stat.S_IWOTH)


EXPOSE = [
    pytest.param(give_away, "belongs to user 4321", marks=needs_root),
    pytest.param(open_to_group, "others than its owner can write to", marks=needs_modes),
    pytest.param(open_to_all, "others than its owner can write to", marks=needs_modes),
]


@pytest.mark.parametrize(("expose", "text"), EXPOSE)
@pytest.mark.parametrize("place", ["", "v3", "v3/colours"])
def test_a_folder_that_others_may_write_to_is_not_used_and_named_once(
    tmp_path: Path, place: str, expose: Callable[[Path], None], text: str
) -> None:
    cache = Cache(tmp_path / "cache")
    cache.write("colours", KEY, "green")
    expose(tmp_path / "cache" / place)
    with pytest.warns(RuntimeWarning, match=text) as caught:
        assert cache.read("colours", KEY) is None
    (warning,) = caught
    assert f"{tmp_path / 'cache' / place}".rstrip("/") in str(warning.message) and "Fix:" in str(warning.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.read("colours", KEY) is None
        cache.write("colours", KEY, "blue")
        cache.write("colours", {"of": "snow"}, "white")
    assert len(list(tmp_path.rglob("*.bin"))) == 1


@pytest.mark.parametrize(("expose", "text"), EXPOSE)
def test_a_file_that_others_may_write_to_is_not_used_and_replaced(
    tmp_path: Path, expose: Callable[[Path], None], text: str
) -> None:
    cache = Cache(tmp_path)
    cache.write("colours", KEY, "green")
    expose(only_file(tmp_path))
    with pytest.warns(RuntimeWarning, match=text) as caught:
        assert cache.read("colours", KEY) is None
    assert len(caught) == 1 and str(only_file(tmp_path)) in str(caught[0].message)
    cache.write("colours", KEY, "green")
    assert cache.read("colours", KEY) == "green"


@needs_modes
def test_links_and_pipes_in_a_cache_are_no_entries(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.write("colours", KEY, "green")
    file = only_file(tmp_path)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert cache.read("colours", KEY) is None
    file.unlink()
    os.mkfifo(file)
    assert cache.read("colours", KEY) is None  # nobody is waited for
    cache.write("colours", KEY, "green")
    assert cache.read("colours", KEY) == "green"
    (tmp_path / "v3" / "colours").rename(tmp_path / "others")
    (tmp_path / "v3" / "colours").symlink_to(tmp_path / "others")
    assert cache.read("colours", KEY) is None


def test_a_folder_that_cannot_be_written_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = Cache(tmp_path / "file")
    with pytest.warns(RuntimeWarning, match="nnc keeps nothing in") as caught:
        cache.write("colours", KEY, "green")
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.write("colours", {"of": "snow"}, "white")


# -- room --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["objects", "programs", "arenas", "kernels"])
def test_old_entries_of_every_kind_make_room(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert most_bytes(kind) <= 1 << 29
    monkeypatch.setattr(cache_module, "most_bytes", lambda kind: 10 * 4096)
    cache = Cache(tmp_path)
    for i in range(30):
        cache.write_bytes(kind, {"i": i}, bytes(100))
        for file in tmp_path.rglob("*.bin"):
            facts = file.stat()
            os.utime(file, (facts.st_atime - 10, facts.st_mtime - 10))  # all get older
    kept = [i for i in range(30) if cache.read_bytes(kind, {"i": i}) is not None]
    assert 10 <= len(kept) <= 12 and kept == list(range(30 - len(kept), 30))


def test_a_folder_is_looked_through_a_few_times_while_it_fills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(cache_module, "most_bytes", lambda kind: 400 * 4096)
    monkeypatch.setattr(cache_module, "_shrink", lambda folder, most: looks.append(most))
    for i in range(400):
        Cache(tmp_path).write_bytes("colours", {"i": i}, bytes(100))
    assert 4 <= len(looks) <= 40


def test_parts_of_killed_writers_are_removed_and_those_of_living_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "most_bytes", lambda kind: 4096)
    folder = tmp_path / "v3" / "colours"
    folder.mkdir(parents=True, mode=0o700)
    left = folder / ".entry.bin.0123abcd.part"
    left.write_bytes(b"half")
    (folder / "download.part").write_bytes(b"somebody else's")
    Cache(tmp_path).write("colours", KEY, "green")
    assert sorted(path.suffix for path in folder.iterdir()) == [".bin", ".part"] and not left.exists()
