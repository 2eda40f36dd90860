"""The compiler: texts become functions, once, in files, and not for longer than they are held."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.cpu.compiler import jit as jit_module
from nnc.backends.cpu.compiler.engine import Engine, processor_facts
from nnc.backends.cpu.compiler.jit import Jit, compiler, expected_compiler, why_absent
from nnc.backends.cpu.compiler.object_cache import Objects
from nnc.backends.cpu.compiler.runtime import Runtime
from nnc.backends.cpu.threads.threads import find_openmp
from nnc.backends.llvm.llvm import CALLS, INLINED, KERNEL, LIGHT, Recipe
from nnc.backends.loaded import choose_kernel
from nnc.backends.native_runs import run_native
from nnc.base import dtypes
from nnc.base.options import Options
from nnc.compiled.pipeline import lower
from nnc.errors import InternalError, OutOfBoundsError
from nnc.lower.kernels.builder import Code
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step

ENGINE = Engine()


@pytest.fixture
def jit() -> Jit:
    """A compiler of its own, without files."""
    made = make_jit(None)
    assert made.works()
    return made


def make_jit(folder: Path | None) -> Jit:
    return Jit(ENGINE, Objects(ENGINE, folder), Runtime(find_openmp(), ctypes.c_int32(2)))


def returning(number: int) -> Native:
    return Native(f"define i64 @KERNEL(ptr %in0) {{\n  ret i64 {number}\n}}\n")


def adding(step: Step) -> Native | None:
    """Adds two vectors of float64, of any strides."""
    (n,), strides = step.outputs[0].spec.shape, [view.strides[0] for view in (*step.inputs, *step.outputs)]
    code = Code("KERNEL", [("ptr", name) for name in ("in0", "in1", "out0")])
    with code.loop(0, n) as i:
        x, y = (
            code.load(code.offset(f"%in{k}", code.mul(i, code.integer(strides[k]))), dtypes.float64) for k in (0, 1)
        )
        code.store(code.offset("%out0", code.mul(i, code.integer(strides[2]))), code.add(x, y))
    code.ret(code.integer(0))
    return Native(code.text())


def called(address: int, *pointers: int) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * len(pointers))(address)(*pointers))


def is_mapped(address: int) -> bool:
    """Whether there is memory at an address of this process."""
    ranges = re.findall(r"^(\w+)-(\w+) ", Path("/proc/self/maps").read_text(), re.MULTILINE)
    return any(int(low, 16) <= address < int(high, 16) for low, high in ranges)


def test_this_machine_has_a_compiler() -> None:
    assert why_absent() is None
    assert compiler() is compiler()


def test_kernels_are_loaded_in_the_order_in_which_they_were_given(jit: Jit) -> None:
    functions = jit.load([returning(1), returning(2), returning(1)])
    assert [called(function.address, 0) for function in functions] == [1, 2, 1]


def test_equal_texts_are_compiled_once_while_someone_holds_them(jit: Jit) -> None:
    before = jit.objects.compiled
    first = jit.load([returning(3)])
    assert jit.load([returning(3), returning(4)])[0] is first[0]
    assert jit.objects.compiled == before + 2


def test_code_is_unloaded_when_nobody_holds_it(jit: Jit) -> None:
    kept, *dropped = jit.load([returning(5)]) + jit.load([returning(6)])
    address = dropped[0].address
    assert is_mapped(kept.address) and is_mapped(address)
    dropped.clear()
    gc.collect()
    assert is_mapped(kept.address) and not is_mapped(address)
    assert called(kept.address, 0) == 5


def test_functions_of_one_batch_stay_while_one_is_held(jit: Jit) -> None:
    first, second = jit.load([returning(7), returning(8)])
    del first
    gc.collect()
    assert called(second.address, 0) == 8


def adding_to(called: Native, number: int, *, light: bool = False) -> Native:
    """A kernel that adds a number to the result of another one."""
    text = (
        f"declare i64 @{called.name}(ptr)\ndefine i64 @KERNEL(ptr %in0) {{\n"
        f"  %x = call i64 @{called.name}(ptr %in0)\n  %y = add i64 %x, {number}\n  ret i64 %y\n}}\n"
    )
    return Native(text, calls=(called,), light=light)


def test_kernels_call_shared_kernels_which_are_compiled_once(jit: Jit) -> None:
    shared = returning(10)
    before = jit.objects.compiled
    one, two = jit.load([adding_to(shared, 1), adding_to(shared, 2, light=True)])
    assert jit.objects.compiled == before + 3
    (three,) = jit.load([adding_to(adding_to(shared, 2), 3)])
    assert jit.objects.compiled == before + 4
    assert [called(function.address, 0) for function in (one, two, three)] == [11, 12, 15]


def test_a_kernel_and_its_callees_can_be_requested_together(jit: Jit) -> None:
    shared, before = returning(11), jit.objects.compiled
    functions = jit.load([shared, adding_to(shared, 1), shared])
    assert jit.objects.compiled == before + 2
    assert [called(function.address, 0) for function in functions] == [11, 12, 11]
    assert functions[0] is functions[2]


def test_shared_kernels_live_as_long_as_one_of_their_callers(jit: Jit) -> None:
    shared = returning(12)
    one, two = (jit.load([adding_to(shared, number)])[0] for number in (1, 2))
    address = jit.load([shared])[0].address
    del one
    gc.collect()
    assert called(two.address, 0) == 14 and is_mapped(address)
    del two
    gc.collect()
    assert not is_mapped(address)


def test_a_kernel_that_is_collected_while_others_are_loaded_is_loaded_anew(
    jit: Jit, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = adding_to(returning(5), 1), adding_to(returning(7), 2)
    holders = jit.load([first])
    compile_all = jit.objects.compile_all

    def collecting(*arguments: Any) -> list[bytes]:
        holders.clear()  # as the garbage collector does, whenever it runs
        return compile_all(*arguments)

    monkeypatch.setattr(jit.objects, "compile_all", collecting)
    found = jit.load([first, second])
    assert [called(function.address) for function in found] == [6, 9] and not holders


def test_callees_of_an_expected_kernel_are_expected_too(jit: Jit, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[str, Recipe]] = []
    monkeypatch.setattr(jit.objects, "begin", lambda text, recipe=KERNEL: begun.append((text, recipe)))
    shared = returning(13)
    caller = adding_to(shared, 1, light=True)
    jit.expect(caller)
    assert begun == [(shared.code, KERNEL), (caller.code, LIGHT)]


def test_a_hundred_compilations_do_not_grow_the_process(jit: Jit) -> None:
    def resident() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def cycle(numbers: range) -> None:
        for number in numbers:
            jit.load([returning(number)])
            jit.load_entry(f"define i64 @ENTRY() {{\n  ret i64 {number}\n}}\n", {}, None)

    cycle(range(1000, 1060))
    before = resident()
    cycle(range(2000, 2100))
    assert resident() - before < 1 << 20


def test_an_entry_calls_kernels_and_holds_them(jit: Jit) -> None:
    kernel = returning(9)
    functions = jit.load([kernel])
    text = f"declare i64 @{kernel.name}(ptr)\ndefine i64 @ENTRY() {{\n  %x = call i64 @{kernel.name}(ptr null)\n  ret i64 %x\n}}\n"
    entry = jit.load_entry(text, {kernel.name: functions[0].address}, functions)
    functions = []
    gc.collect()
    assert called(entry.address) == 9


def test_kernels_that_are_marked_are_taken_into_the_entry() -> None:
    text = (
        "define internal i64 @short(i64 %x) alwaysinline {\n  %y = add i64 %x, 1\n  ret i64 %y\n}\n"
        "define i64 @ENTRY() {\n  %x = call i64 @short(i64 41)\n  ret i64 %x\n}\n"
    )
    jit = make_jit(None)
    assert called(jit.load_entry(text, {}, None).address) == 42
    assert "call" not in ENGINE.assembly(text, INLINED).split("ENTRY:")[1]


def test_symbols_of_the_same_name_may_differ_between_kernels(jit: Jit) -> None:
    text = "declare i64 @given()\ndefine i64 @KERNEL() {{\n  %x = call i64 @given()\n  %y = add i64 %x, {}\n  ret i64 %y\n}}\n"
    one, two = jit.load([returning(1), returning(2)])
    natives = [Native(text.format(10), {"given": one.address}), Native(text.format(20), {"given": two.address})]
    assert [called(function.address) for function in jit.load(natives)] == [11, 22]


def test_a_text_that_llvm_refuses_is_shown_with_the_place(jit: Jit) -> None:
    filler = "".join(f"  %x{i} = add i64 0, {i}\n" for i in range(40))
    with pytest.raises(InternalError, match="doesn't match function result type") as caught:
        jit.load([Native(f"define i64 @KERNEL(ptr %in0) {{\n{filler}  ret i6 0\n}}\n")])
    shown = str(caught.value).splitlines()
    assert any(line.startswith("    1 define i64 @k") for line in shown)
    assert "   42   ret i6 0" in shown


def test_a_symbol_that_nobody_gives_is_named(jit: Jit, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InternalError, match=r"Nobody gave: .*lost_function"):
        jit.load(
            [
                Native(
                    "declare void @lost_function()\ndefine i64 @KERNEL() {\n  call void @lost_function()\n  ret i64 0\n}\n"
                )
            ]
        )
    assert capfd.readouterr().err == ""


def test_a_text_that_failed_can_be_loaded_once_it_is_mended(jit: Jit) -> None:
    text = "declare i64 @given_late()\ndefine i64 @KERNEL() {\n  %x = call i64 @given_late()\n  ret i64 %x\n}\n"
    with pytest.raises(InternalError, match="given_late"):
        jit.load([Native(text)])
    (seven,) = jit.load([returning(7)])
    assert called(jit.load([Native(text, {"given_late": seven.address})])[0].address) == 7


@pytest.mark.parametrize("name", ["LoadLibrary", "initialize"])
def test_without_llvm_the_reason_is_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(cpu: str | None) -> Engine:
        raise OSError(f"{name} failed")

    monkeypatch.setattr(jit_module, "Engine", failing)
    monkeypatch.setattr(jit_module, "_start_once", jit_module._start_once.__wrapped__)
    assert compiler() is None
    assert why_absent() == f"OSError: {name} failed"
    out = np.empty(2)
    run_native(adding, "add")([np.ones(2), np.ones(2)], [out], {})
    assert out.tolist() == [2, 2]  # by NumPy
    workspace = np.empty(64, np.uint8)
    run_native(adding, "add")([out, out], [out, workspace], {})
    assert out.tolist() == [4, 4]


class Damaged(Engine):
    """An engine whose LLVM turns out not to be there."""

    def begin(self, text: str, recipe: Recipe = KERNEL) -> Callable[[], bytes]:
        def make() -> bytes:
            raise OSError("libllvmlite.so is damaged")

        return make


def test_a_compiler_that_turns_out_not_to_work_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNC_CACHE_DIR", str(tmp_path))  # where nothing is compiled yet
    monkeypatch.setattr(jit_module, "Engine", Damaged)
    monkeypatch.setattr(jit_module, "_start_once", cache(jit_module._start_once.__wrapped__))
    expected = expected_compiler()
    assert expected is not None  # nobody has asked LLVM yet
    graph = nnc.make_graph(lambda x: nnp.tanh(x) + x)(np.ones(3))
    program = lower(graph, Options(cache_folder=tmp_path), choose_kernel, expected)
    assert program.code is None
    assert program.run([np.ones(3)])[0].tolist() == [np.tanh(1.0) + 1] * 3
    assert not list(tmp_path.rglob("*"))  # the next process may be luckier
    assert compiler() is None
    assert why_absent() == "OSError: libllvmlite.so is damaged"
    with pytest.raises(OSError, match="damaged"):
        expected.load([returning(1)])


@pytest.mark.skipif(not ENGINE.is_apart, reason="LLVM is in the process itself")
def test_common_functions_are_begun_at_once_and_waited_for_later() -> None:
    log: list[str] = []

    class Watched(Engine):
        def begin(self, text: str, recipe: Recipe = KERNEL) -> Callable[[], bytes]:
            make = super().begin(text, recipe)
            log.append("begun")
            return lambda: log.append("waited for") or make()

    engine = Watched()
    made = Jit(engine, Objects(engine, None), Runtime(find_openmp(), ctypes.c_int32(2)))
    assert log == ["begun"]
    assert made.works() and made.works()
    assert log == ["begun", "waited for"]


# -- objects in files --------------------------------------------------------------------------------------------------

SCRIPT = """
from nnc.backends.cpu.compiler.jit import compiler
from nnc.lower.kernels.native import Native
jit = compiler()
functions = jit.load([Native(f"define i64 @KERNEL(ptr %x) {{ ret i64 {i} }}") for i in range(3)])
entry = jit.load_entry("define i64 @ENTRY() { ret i64 5 }", {}, functions)
print(jit.objects.compiled)
"""


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    def compiled(folder: Path) -> str:
        environment = {**os.environ, "NNC_CACHE_DIR": str(folder)}
        return subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert compiled(tmp_path) == "5"  # three kernels, the entry, the runtime
    assert compiled(tmp_path) == "0"


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    make_jit(tmp_path).load([returning(11)])
    return tmp_path


def loads_after(folder: Path, change: Callable[[bytes], bytes]) -> int:
    """Counts the texts that are compiled anew after all files of a cache were changed."""
    for path in folder.rglob("*.bin"):
        path.write_bytes(change(path.read_bytes()))
    again = make_jit(folder)
    (function,) = again.load([returning(11)])
    assert called(function.address, 0) == 11
    return again.objects.compiled


def test_files_are_used_as_they_are(filled: Path) -> None:
    assert loads_after(filled, lambda content: content) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: content.replace(b"\x7fELF", b"\x7fELG"),
        lambda content: content.replace(b'"llvm": "', b'"llvm": "1'),
    ],
)
def test_damaged_and_foreign_files_are_ignored_and_replaced(filled: Path, change: Callable[[bytes], bytes]) -> None:
    assert loads_after(filled, change) == 2  # the runtime and the kernel
    assert loads_after(filled, lambda content: content) == 0


def test_code_for_another_processor_is_not_used(tmp_path: Path) -> None:
    Objects(ENGINE, tmp_path).compile(returning(1).code)
    other = Objects(Engine("x86-64"), tmp_path)
    other.compile(returning(1).code)
    assert other.compiled == 1


def test_where_linux_does_not_tell_the_processor_llvm_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    assert processor_facts(cpuinfo) == ""
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Some\nflags\t: sse avx\n\nprocessor\t: 1\nflags\t: none\n")
    assert processor_facts(cpuinfo).splitlines()[1:] == ["model name\t: Some", "flags\t: sse avx"]
    cpuinfo.write_text("processor\t: 0\nFeatures\t: fp asimd\nCPU part\t: 0xd0c\n\nprocessor\t: 1\n")
    assert processor_facts(cpuinfo).splitlines()[1:] == ["Features\t: fp asimd", "CPU part\t: 0xd0c"]
    cpuinfo.write_text("model name\t: Some\n")
    monkeypatch.setattr("nnc.backends.cpu.compiler.engine.processor_facts", lambda: processor_facts(cpuinfo))
    engine = Engine()
    assert engine.machine.cpu in engine.made_for["machine"] and engine.machine.llvm == engine.made_for["llvm"]


def test_the_recipe_is_part_of_the_key(tmp_path: Path) -> None:
    objects = Objects(ENGINE, tmp_path)
    for recipe in (KERNEL, CALLS, KERNEL):
        objects.compile(returning(1).code, recipe)
    assert objects.compiled == 2


def test_a_few_modules_are_compiled_by_the_caller() -> None:
    objects = Objects(Engine(apart=False), None)
    before = threading.active_count()
    assert len(objects.compile_all([returning(i).code for i in range(3)])) == 3
    assert threading.active_count() == before


def test_modules_compile_in_several_threads() -> None:
    seen: set[str] = set()

    class Watched(Engine):
        def begin(self, text: str, recipe: Recipe = KERNEL) -> Callable[[], bytes]:
            make = super().begin(text, recipe)

            def noted() -> bytes:
                seen.add(threading.current_thread().name)
                barrier.wait()
                return make()

            return noted

    barrier, engine = threading.Barrier(2, timeout=30), Watched(apart=False)
    engine.threads = 2
    texts = [returning(i).code for i in range(8)]
    made = Objects(engine, None).compile_all(texts)
    assert len(seen) == 2
    assert made == Objects(ENGINE, None).compile_all(texts)


def test_a_text_that_was_begun_is_compiled_once(tmp_path: Path) -> None:
    begun: list[str] = []

    class Watched(Engine):
        def begin(self, text: str, recipe: Recipe = KERNEL) -> Callable[[], bytes]:
            begun.append(text)
            return super().begin(text, recipe)

    texts = [returning(i).code for i in range(3)]
    objects = Objects(Watched(), tmp_path)
    for text in (*texts, texts[0]):
        objects.begin(text)
    made = objects.compile_all(texts)
    assert begun == texts
    assert made == Objects(ENGINE, tmp_path).compile_all(texts)
    assert (objects.compiled, objects.found) == (3, 0)


# -- kernels on NumPy arrays -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [slice(None), slice(None, None, 2), slice(None, None, -1), slice(0, 0)])
def test_native_kernels_run_on_arrays_of_any_strides(part: slice) -> None:
    run = run_native(adding, "add")
    x, y = np.arange(10.0)[part], np.arange(10.0)[::-1][part]
    for out in (np.empty(x.shape), np.empty((*x.shape, 2))[:, 1]):
        run([x, y], [out], {})
        np.testing.assert_array_equal(out, x + y)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("displaced", ["neither", "input", "result", "both"])
def test_kernels_get_elements_at_multiples_of_their_size(displaced: str, packed: bool) -> None:
    """Code of libraries, which peels elements off until a vector is aligned, faults at other addresses."""
    takes = "ptr %table" if packed else "ptr %in0, ptr %out0"
    reads = """
  %at = getelementptr i8, ptr %table, i64 8
  %in0 = load ptr, ptr %table
  %out0 = load ptr, ptr %at"""
    text = f"""
define i64 @KERNEL({takes}) {{
{reads * packed}
  %from = ptrtoint ptr %in0 to i64
  %to = ptrtoint ptr %out0 to i64
  %either = or i64 %from, %to
  %rest = and i64 %either, 7
  %old = load i64, ptr %out0, align 1
  %new = load i64, ptr %in0, align 1
  %sum = add i64 %old, %new
  store i64 %sum, ptr %out0, align 1
  ret i64 %rest
}}
"""
    x, out = (
        np.zeros(17, np.uint8)[1 if displaced in (which, "both") else 0 :][:8].view(np.int64)
        for which in ("input", "result")
    )
    x[0], out[0] = 5, 2
    run_native(lambda step: Native(text, packed=packed), "neg")([x], [out], {})
    assert out[0] == 7


def test_steps_that_differ_in_numbers_share_code() -> None:
    text = """
define i64 @KERNEL(ptr %in0, ptr %out0, i64 %m, i64 %n) {
  %x = mul i64 %m, %n
  store i64 %x, ptr %out0
  ret i64 0
}
"""

    def native(step: Step) -> Native:
        return Native(text, numbers=(step.inputs[0].spec.size, 10))

    run, jit, params = run_native(native, "neg"), compiler(), dict[str, Any]()
    assert jit is not None
    before = jit.objects.compiled + jit.objects.found
    for n in (1, 2, 3):
        out = np.empty(1, np.int64)
        run([np.zeros(n)], [out], params)
        assert out[0] == 10 * n
    assert jit.objects.compiled + jit.objects.found <= before + 2  # the kernel, and its caller


def test_each_layout_is_compiled_for_and_found_again() -> None:
    made = []

    def native(step: Step) -> Native | None:
        made.append(step.inputs[0].spec.shape)
        return adding(step)

    run, params = run_native(native, "add"), dict[str, Any]()
    for n in (3, 4, 3, 4, 3):
        out = np.empty(n)
        run([np.ones(n), np.ones(n)], [out], params)
        assert out.tolist() == [2.0] * n
    assert made == [(3,), (4,)]


def test_parameters_that_differ_are_told_apart_when_their_memory_is_used_again() -> None:
    def native(step: Step) -> Native:
        return Native(
            f"define i64 @KERNEL(ptr %in0, ptr %out0) {{\n  store i64 {step.params['axis']}, ptr %out0\n  ret i64 0\n}}\n"
        )

    run, x = run_native(native, "cumsum"), np.zeros(1)
    for axis in range(50):
        out = np.empty(1, np.int64)
        run([x], [out], {"axis": axis})  # each dict may lie where the last one was
        assert out[0] == axis


def test_strides_that_a_kernel_does_not_take_are_run_by_numpy() -> None:
    run, out = run_native(lambda step: None, "add"), np.empty(3)
    run([np.ones(3), np.ones(3)], [out], {})
    assert out.tolist() == [2, 2, 2]


def test_a_refused_input_raises_the_error_of_the_reference() -> None:
    run = run_native(
        lambda step: Native("define i64 @KERNEL(ptr %in0, ptr %in1, ptr %out0) {\n  ret i64 1\n}\n"), "gather"
    )
    params, out = {"axes": (0,), "batch": 0, "mode": "error"}, np.empty(1)
    with pytest.raises(OutOfBoundsError):
        run([np.zeros(3), np.array([7])], [out], params)
    with pytest.raises(InternalError, match="gather: the native kernel refused"):
        run([np.zeros(3), np.array([1])], [out], params)


def test_each_thread_has_its_own_state() -> None:
    class Counter:
        def __init__(self, scratch: int) -> None:
            self._memory = ctypes.c_int64(0)
            counters.append(self)

        @property
        def address(self) -> int:
            return ctypes.addressof(self._memory)

    counters: list[Counter] = []
    text = """
define i64 @KERNEL(ptr %in0, ptr %out0, ptr %state) {
  %old = load i64, ptr %state
  %new = add i64 %old, 1
  store i64 %new, ptr %state
  store i64 %new, ptr %out0
  ret i64 0
}
"""
    run, x = run_native(lambda step: Native(text, state=Counter), "neg"), np.zeros(1, np.int64)
    params: dict[str, Any] = {}
    run([x], [np.empty(1, np.int64)], params)
    last: list[int] = []

    def work() -> None:
        out = np.empty(1, np.int64)
        for _ in range(100):
            run([x], [out], params)
        last.append(int(out[0]))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert last == [100] * 8
    assert len(counters) == 9


def test_eight_threads_compile_and_run_the_same_kernel() -> None:
    run, params = run_native(adding, "add"), dict[str, Any]()

    def work(i: int) -> list[float]:
        out = np.empty(40 + i % 4)
        for _ in range(50):
            run([np.full(out.shape, float(i)), np.ones(out.shape)], [out], params)
        return list(out)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [[i + 1.0] * (40 + i % 4) for i in range(8)]
