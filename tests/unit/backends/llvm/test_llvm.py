"""LLVM as it is called here: compilation, caches, and how little has to be imported for it."""

from __future__ import annotations

import _ctypes
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nnc.backends.llvm import llvm
from nnc.backends.llvm.llvm import CALLS, INLINED, KERNEL, LIGHT, Llvm, Recipe, decode, encode, load_library
from nnc.backends.llvm.llvmlite_library import find_library

LIBRARY, ALL = find_library(), (KERNEL, LIGHT, INLINED, CALLS)
REFUSED = "define i64 @f() {\n  ret i6 0\n}\n"


@pytest.fixture(scope="module")
def here() -> Llvm:
    return Llvm(LIBRARY)


def text(number: int) -> str:
    return f"define i64 @f() {{\n  ret i64 {number}\n}}\n"


def memory() -> int:
    """KiB that this process holds."""
    (line,) = [x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmRSS")]
    return int(line.split()[1])


@pytest.mark.parametrize("recipe", ALL)
def test_machine_code_can_be_read(here: Llvm, recipe: Recipe) -> None:
    assert "f:" in here.assembly(text(4711), recipe) and "4711" in here.assembly(text(4711), recipe)
    assert here.compile(text(4711), recipe) == here.compile(text(4711), recipe)


def test_recipes_are_equal_where_they_do_the_same() -> None:
    assert len({*ALL, *(decode(encode(recipe)) for recipe in ALL)}) == 4
    assert "sroa" in encode(KERNEL)


def test_variables_in_memory_become_registers_where_the_recipe_says_so(here: Llvm) -> None:
    body = "  %p = alloca i64\n  store i64 %x, ptr %p\n  %y = load i64, ptr %p\n  ret i64 %y\n"
    sizes = {recipe: here.assembly(f"define i64 @f(i64 %x) {{\n{body}}}\n", recipe).count("sp") for recipe in ALL}
    assert sizes[CALLS] > 0 == sizes[KERNEL] == sizes[LIGHT] == sizes[INLINED]


def test_a_processor_that_is_named_has_no_more_than_its_name_says() -> None:
    assert Llvm(LIBRARY, "x86-64").features == ""
    assert Llvm(LIBRARY, "x86-64").cpu == "x86-64"


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="the system does not tell how much a process holds")
def test_nothing_is_left_behind_by_compiled_or_refused_texts(here: Llvm) -> None:
    def work(times: int) -> int:
        for i in range(times):
            here.compile(text(i), ALL[i % 4])
            with pytest.raises(RuntimeError, match="result type"):
                here.compile(REFUSED)
        return memory()

    before = work(100)
    assert work(400) - before < 4000


def test_threads_share_the_compiler(here: Llvm) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda i: here.compile(text(i)), range(100)))
    assert made == [here.compile(text(i)) for i in range(100)]
    assert len(here._unused[KERNEL[0]]) <= 5


def test_files_that_are_no_library_are_named(tmp_path: Path) -> None:
    (tmp_path / "damaged.so").write_bytes(b"?")
    with pytest.raises(OSError, match="damaged"):
        Llvm(str(tmp_path / "damaged.so"))


def test_a_library_that_lacks_a_function_is_told() -> None:
    with pytest.raises(ImportError, match="does not have the function LLVMPY_"):
        load_library(_ctypes.__file__)


def test_each_request_is_taken_once() -> None:
    waiting, taken = llvm._Waiting(), list[int]()

    def take() -> None:
        while (request := waiting.take())[0]:
            taken.append(request[0])

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(1, 2001):
        waiting.put(i, encode(KERNEL), "text" * (1 + i % 7))
    for _ in threads:
        waiting.put(0, "", "")  # the shortest, so the last
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert sorted(taken) == list(range(1, 2001))


def test_the_process_imports_only_its_needs() -> None:
    folder = str(Path(llvm.__file__).parent)
    script = f"import sys; sys.path.append({folder!r}); import llvm; llvm.Llvm(sys.argv[1]); print(*sys.modules)"
    command = [sys.executable, "-I", "-S", "-c", script, LIBRARY]
    imported = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert not {"typing", "threading", "signal", "llvmlite", "collections", "importlib", "nnc"} & set(imported)
