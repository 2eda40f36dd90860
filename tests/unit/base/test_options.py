from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nnc.base.machine import processor
from nnc.base.options import Options, chosen_cpu, parse_bytes
from nnc.errors import ArgumentError, ArgumentTypeError


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        (0, 0), (7, 7), ("7", 7), ("7B", 7), ("2GiB", 2**31), ("2 gib", 2**31), ("500MB", 500_000_000), ("1.5k", 1500),
        ("1_000", 1000), (" 3TiB ", 3 * 2**40), ("0.5KiB", 512),
    ],
)  # fmt: skip
def test_sizes_are_read(text: int | str, nbytes: int) -> None:
    assert parse_bytes(text) == nbytes


@pytest.mark.parametrize("text", ["", "GiB", "2 XB", "-1", -1, "1e9", "2GiBs"])
def test_objects_that_are_no_sizes_are_refused(text: int | str) -> None:
    with pytest.raises(ArgumentError, match="Fix: give a number of bytes"):
        parse_bytes(text)


@pytest.mark.parametrize("value", [1.5, True, None, b"2GiB"])
def test_sizes_are_ints_or_texts(value: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="memory_budget"):
        parse_bytes(value)


def test_the_environment_sets_options() -> None:
    assert Options.from_environment({}) == Options()
    options = Options.from_environment({"NNC_VERIFY": "1", "NNC_GUARD": "yes", "NNC_MEMORY_BUDGET": "1MiB"})
    assert options.verify_passes and options.guard
    assert options.memory_budget == 2**20
    with pytest.raises(ArgumentError, match="NNC_VERIFY"):
        Options.from_environment({"NNC_VERIFY": "perhaps"})


def test_the_environment_chooses_the_memory_planner() -> None:
    assert Options().allocator == Options.from_environment({"NNC_ALLOCATOR": ""}).allocator == "portfolio"
    assert Options.from_environment({"NNC_ALLOCATOR": "article"}).allocator == "article"
    with pytest.raises(ArgumentError, match="NNC_ALLOCATOR: 'best' is no memory planner"):
        Options.from_environment({"NNC_ALLOCATOR": "best"})
    with pytest.raises(ArgumentError, match="choose one of 'portfolio', 'article', 'article-size'"):
        Options(allocator="Article")


def test_the_cache_lies_where_the_environment_says_or_the_system_keeps_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    def folder(platform: str, **variables: str) -> Path | None:
        monkeypatch.setattr("sys.platform", platform)
        return Options.from_environment(variables).cache_folder

    assert folder("linux", NNC_CACHE_DIR="/mine", HOME="/home/me") == Path("/mine")
    assert folder("linux", HOME="/home/me", XDG_CACHE_HOME="/caches") == Path("/caches/nnc")
    assert folder("linux", HOME="/home/me") == Path("/home/me/.cache/nnc")
    assert folder("darwin", HOME="/Users/me") == Path("/Users/me/Library/Caches/nnc")
    assert folder("win32", LOCALAPPDATA="C:/Local", HOME="/ignored") == Path("C:/Local/nnc/Cache")
    assert folder("linux") is None


@pytest.mark.parametrize(
    ("variables", "threads"),
    [
        ({}, None), ({"OMP_NUM_THREADS": "4,2"}, 4), ({"OMP_NUM_THREADS": "8", "OPENBLAS_NUM_THREADS": "1"}, 1),
        ({"OMP_NUM_THREADS": "many"}, None), ({"MKL_NUM_THREADS": "0"}, None),
    ],
)  # fmt: skip
def test_the_variables_of_libraries_say_how_many_threads_kernels_take(
    variables: dict[str, str], threads: int | None
) -> None:
    assert Options.from_environment(variables).kernel_threads == threads


def test_equal_options_are_one_cache_key() -> None:
    assert {Options(memory_budget=5): 1}[Options(memory_budget=5)] == 1
    assert Options().update(streams=1) != Options()


CPUINFO = "model name : Old CPU\nflags : fpu avx2 fma\n"


def test_the_environment_chooses_the_processor_that_code_is_made_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(CPUINFO)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    for name, wanted in (("", None), ("native", None), ("x86-64-v2", "x86-64-v2"), ("znver3", "znver3")):
        monkeypatch.setenv("NNC_CPU", name)
        assert chosen_cpu(file) == wanted
    monkeypatch.setenv("NNC_CPU", "x86-64-v4")
    with pytest.raises(ArgumentError, match="cannot run code for x86-64-v4: it lacks avx512f"):
        chosen_cpu(file)
    monkeypatch.setenv("NNC_CPU", "z80")
    with pytest.raises(
        ArgumentError, match=r"NNC_CPU: nnc knows no processor 'z80'.\s.*[^F]*Fix: choose native, or one of x86"
    ):
        chosen_cpu(file)
    monkeypatch.setenv("NNC_CPU", "x86-64-v2")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(ArgumentError, match="it lacks the instructions"):
        chosen_cpu(file)


def test_units_that_the_chosen_processor_lacks_are_not_used(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("flags : fpu avx2 fma avx512f avx512_bf16\n")
    assert processor(file)["vector units"] == "avx2, fma, avx512f, avx512_bf16"
    assert processor(file, "x86-64-v4")["vector units"] == "avx2, fma, avx512f"
    assert processor(file, "skylake") | {"made for": "skylake"} == processor(file, "skylake")
    assert processor(file, "skylake")["vector units"] == "avx2, fma"
