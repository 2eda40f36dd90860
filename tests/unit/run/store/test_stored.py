from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.lower.phases as phases
import nnc.numpy as nnp
import nnc.run.store.stored as stored
import nnc.run.store.stored_form as stored_form
from nnc.backends.loaded import choose_kernel, compiler
from nnc.base.options import Options
from nnc.base.target import Target
from nnc.compiled.pipeline import lower
from nnc.compiled.toolchain import toolchain
from nnc.errors import MemoryBudgetError, ShapeError
from nnc.graph import ATTRIBUTES, Command, Graph, GraphBuilder, Kernel, TensorSpec, register, register_pass
from nnc.graph.passes import run_passes
from nnc.graph.rules import Rules
from nnc.lower.plan.liveness import walk
from nnc.run.program import Program
from nnc.run.queued_code import QueuedCode
from nnc.run.store.cache import Cache
from nnc.run.store.stored import find_place

pytestmark = pytest.mark.unguarded

NNC = Path(nnc.__file__).parent
X, W = np.linspace(-1, 1, 48, dtype=np.float32).reshape(8, 6), np.linspace(1, -1, 30, dtype=np.float32).reshape(6, 5)


def loss(x: Any, w: Any) -> Any:
    return nnp.mean((nnp.tanh(x @ w) - 0.5) ** 2)


def training(x: Any, w: Any) -> Any:
    value, gradient = nnc.value_and_grad(loss, 1)(x, w)
    return w - 0.1 * gradient, value


def iterations(x: Any, w: Any) -> Any:
    return nnc.while_loop(lambda s: nnp.sum(s) < 100, lambda s: s * 1.5 + 1, nnp.abs(x @ w))


def rows(x: Any, w: Any) -> Any:
    return nnc.scan(lambda c, row: (nnp.tanh(c + row @ w), nnp.sum(c)), nnp.zeros(5), x)


def branches(x: Any, w: Any) -> Any:
    return nnc.cond(nnp.sum(x) > 0, lambda x: nnp.exp(x) @ w, lambda x: x @ nnp.flip(w), x)


def sorted_parts(x: Any, w: Any) -> Any:
    return (
        nnp.sort(x, axis=0),
        nnp.linalg.inv(w[:5] @ w[:5].T + nnp.eye(5)),
        x[::2, ::-1] + np.arange(6, dtype=np.float32),
    )


def convolved(x: Any, w: Any) -> Any:
    return nnc.nn.conv(x.reshape(1, 1, 8, 6), w.reshape(2, 1, 5, 3))


@dataclass
class Workbench:
    """Lowers graphs with entries in a folder, and counts the pipelines that run."""

    folder: Path
    pipelines: list[tuple[str, ...]] = field(default_factory=list)

    def lower(self, graph: Graph, choose: Any = choose_kernel, **options: Any) -> Program:
        return lower(graph, Options(cache_folder=self.folder, **options), choose, compiler())

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*/programs/*.bin"))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    made = Workbench(tmp_path)

    def run(graph: Graph, names: tuple[str, ...], options: Any, **rest: Any) -> Graph:
        made.pipelines.append(names)
        return run_passes(graph, names, options, **rest)

    monkeypatch.setattr(phases, "run_passes", run)
    monkeypatch.setattr(stored, "files_digest", lambda kind: "these files")
    return made


def describe(program: Program) -> tuple[Any, ...]:
    plan = program.memory_plan
    return program.as_text(), str(plan), plan, program.schedule, str(program.cost), program.planned.bound.donated


FUNCTIONS = [training, iterations, rows, branches, sorted_parts, convolved]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("native", [True, False])
def test_a_stored_program_is_the_one_that_was_lowered(
    bench: Workbench, function: Callable[..., Any], native: bool
) -> None:
    graph = nnc.make_graph(function)(X, W)
    first = bench.lower(graph, native=native)
    assert bench.pipelines
    bench.pipelines.clear()
    second = bench.lower(nnc.make_graph(function)(X, W), native=native)
    assert not bench.pipelines
    assert describe(second) == describe(first)
    assert (second.code is None) == (first.code is None)
    for one, other in zip(first.run([X, W]), second.run([X, W]), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("device", ["sim:0", "ptx:0"])
def test_a_stored_program_of_a_device_keeps_its_kernels(bench: Workbench, device: str) -> None:
    tools, options = toolchain(device), Options(cache_folder=bench.folder, device=device)
    make = lambda: lower(nnc.make_graph(training)(X, W), options, tools.choose_kernel, tools.compiler())
    first = make()
    bench.pipelines.clear()
    second = make()
    assert not bench.pipelines and describe(second) == describe(first)
    kernels = [[p.printed.get(id(step)) for step in walk(p.bound.steps)] for p in (first, second)]
    assert kernels[0] == kernels[1] and any(kernels[0]) == (device == "ptx:0")
    codes = [program.code for program in (first, second)]
    assert all(isinstance(code, QueuedCode) for code in codes)


def test_a_stored_program_runs_before_anything_is_known_of_its_steps(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*_: Any) -> Any:
        raise AssertionError("a step was read")

    graph = nnc.make_graph(training)(X, W)
    expected = bench.lower(graph, donated=(1,)).run([X, W.copy()])
    with monkeypatch.context() as changed:
        changed.setattr(stored_form, "Step", nobody)
        program = bench.lower(graph, donated=(1,))
        donated = W.copy()
        results = program.run([X, donated])
        with pytest.raises(ShapeError, match="another spec"):
            program.run([X, X])
    assert results[0].ctypes.data == donated.ctypes.data
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(program.bound.steps) == len(program.schedule.planned)


def test_a_call_that_finds_its_program_reads_no_step(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, written: Callable[[], None]
) -> None:
    def nobody(*_: Any) -> Any:
        raise AssertionError("a step was read")

    monkeypatch.setenv("NNC_CACHE_DIR", str(bench.folder))
    first, second = (nnc.compile(training, donate_argnums=1) for _ in range(2))
    expected = first(X, nnp.asarray(W))
    written()
    monkeypatch.setattr(stored_form, "Step", nobody)
    donated = nnp.asarray(W)
    for one, other in zip(second(X, donated), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert donated.is_deleted()


def test_the_parts_of_a_stored_program_are_read_once_by_all_callers(bench: Workbench) -> None:
    graph = nnc.make_graph(training)(X, W)
    bench.lower(graph)
    program = bench.lower(graph)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: program.parts(), range(16)))
    assert all(parts is found[0] for parts in found)


def test_kernels_are_stored_with_the_shared_kernels_that_they_call(bench: Workbench) -> None:
    # Tiles are shared from some size on, which processors of short vectors reach by many terms.
    x, w = (np.linspace(-1, 1, rows * 1536, dtype=np.float32).reshape(rows, 1536) for rows in (32, 1536))
    graph = nnc.make_graph(lambda x, w: nnp.tanh(x @ w) @ w)(x, w)
    first = bench.lower(graph)
    expected = first.run([x, w])[0]
    bench.pipelines.clear()
    second = bench.lower(graph)
    assert not bench.pipelines
    np.testing.assert_array_equal(second.run([x, w])[0], expected)
    assert first.code is not None and second.code is not None
    calls = [
        {each.name for native in code.natives.values() for each in native.calls} for code in (first.code, second.code)
    ]
    assert calls[0] == calls[1] != set()
    assert any(native.light for native in second.code.natives.values())


def test_a_program_without_compiled_kernels_is_stored(bench: Workbench) -> None:
    b = GraphBuilder("inverse")
    x = b.input((3,), "complex64")
    graph = b.build(b.add("asinh", x))
    assert bench.lower(graph).code is None
    bench.pipelines.clear()
    again = bench.lower(graph)
    assert not bench.pipelines
    values = np.array([1j, 2, 1 + 1j], np.complex64)
    np.testing.assert_array_equal(again.run([values])[0], np.arcsinh(values))


def test_rematerialized_values_are_in_the_stored_plan(bench: Workbench) -> None:
    def there_and_back(x: Any) -> Any:
        values = [nnp.tanh(x)]
        for _ in range(11):
            values.append(nnp.sin(values[-1]))
        total = nnp.cos(values[-1])
        for value in reversed(values):
            total = nnp.cos(total) + total * value
        return total

    graph, budget = nnc.make_graph(there_and_back)(np.ones((16, 16), np.float32)), 9 << 10
    first = bench.lower(graph, memory_budget=budget, native=False)
    bench.pipelines.clear()
    second = bench.lower(graph, memory_budget=budget, native=False)
    assert not bench.pipelines
    assert first.planned.recomputed
    assert describe(second) == describe(first)


def test_a_budget_that_does_not_suffice_is_refused_again(bench: Workbench) -> None:
    graph = nnc.make_graph(training)(X, W)
    for _ in range(2):
        with pytest.raises(MemoryBudgetError):
            bench.lower(graph, memory_budget=1)
    assert not bench.files()


def test_other_options_have_programs_of_their_own(bench: Workbench) -> None:
    graph = nnc.make_graph(training)(X, W)
    bench.lower(graph)
    for options in (
        {"donated": (1,)},
        {"streams": 1},
        {"allocator": "article"},
        {"kernel_threads": 1},
        {"native": False},
    ):
        bench.pipelines.clear()
        bench.lower(graph, **options)
        assert bench.pipelines, options
    assert len(bench.files()) == 6


def test_other_files_of_nnc_and_other_libraries_have_programs_of_their_own(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = nnc.make_graph(training)(X, W)
    bench.lower(graph)
    monkeypatch.setattr(stored, "files_digest", lambda kind: "other files")
    bench.lower(graph)
    monkeypatch.setattr(stored, "_here", lambda kind: {"numpy": "another version"})
    bench.lower(graph)
    assert len(bench.files()) == 3


@pytest.mark.parametrize("library", ["cupy", "cuBLASLt", "nvJitLink"])
def test_only_programs_for_gpus_depend_on_the_versions_of_their_libraries(
    library: str, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = nnc.make_graph(training)(X, W)
    versions = stored.gpu_library_versions()
    assert library in versions

    def keys() -> dict[str, Any]:
        stored._here.cache_clear()
        found = {}
        for device in ("cpu", "sim:0", "cuda:0", "ptx:0"):
            options = Options(cache_folder=bench.folder, device=device)
            place = find_place(graph, options, native=True, choice="")
            assert place is not None and place.name is not None
            found[device] = place.name.key
        return found

    before = keys()
    monkeypatch.setattr(stored, "gpu_library_versions", lambda: {**versions, library: "another version"})
    after = keys()
    stored._here.cache_clear()
    assert {device for device, key in after.items() if key != before[device]} == {"cuda:0", "ptx:0"}


def test_files_that_changed_while_the_process_ran_keep_it_from_storing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = partial(stored.files_digest.__wrapped__, "cpu")
    file = tmp_path / "part.py"
    file.write_text("a = 1")
    monkeypatch.setattr(stored, "_FOLDER", tmp_path)
    assert digest() is None
    long_ago = time.time() - 1e6
    os.utime(file, (long_ago, long_ago))
    before = digest()
    assert before is not None
    (tmp_path / "nn").mkdir()
    (tmp_path / "nn" / "layers.py").write_text("which only makes graphs")
    assert digest() == before
    file.write_text("a = 12")
    os.utime(file, (long_ago, long_ago))
    assert digest() not in (None, before)


def test_files_for_other_kinds_of_devices_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = stored.files_digest.__wrapped__
    monkeypatch.setattr(stored, "_FOLDER", tmp_path)
    before = {kind: digest(kind) for kind in ("cpu", "cuda")}
    for name in ("backends/cuda/kernels/rows.py", "device/cuda/streams.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("prints no kernel of the CPU")
        os.utime(tmp_path / name, (1, 1))
    assert digest("cpu") == before["cpu"] and digest("cuda") != before["cuda"]
    (tmp_path / "backends" / "cpu").mkdir()
    (tmp_path / "backends" / "cpu" / "rows.py").write_text("prints")
    os.utime(tmp_path / "backends" / "cpu" / "rows.py", (1, 1))
    assert digest("cpu") != before["cpu"]


def test_a_program_of_the_cpu_reads_no_file_for_other_kinds_of_devices() -> None:
    script = (
        "import sys, numpy as np, nnc, nnc.numpy as nnp\n"
        "f = nnc.compile(nnc.grad(lambda x: nnp.sum(nnc.nn.softmax(x @ x) + nnp.sort(x)[0])))\n"
        "f(np.ones((4, 4), 'float32')), nnc.compile(nnp.linalg.inv)(np.eye(3))\n"
        "print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    others = {name for name in loaded if name.startswith("nnc.") and set(name.split(".")) & stored._OF_OTHERS["cpu"]}
    assert not others and "nnc.backends.cpu.kernels.sorts.rows" in loaded
    assert all(any(path.name == name for path in NNC.rglob(name)) for name in stored._OF_OTHERS["cpu"])


def test_all_files_of_the_package_but_those_above_lowering_count() -> None:
    assert stored._FOLDER == NNC
    assert {each.name for each in NNC.iterdir()} >= stored._ABOVE


def test_the_files_that_no_program_depends_on_say_nothing_that_lowering_reads() -> None:
    def modules(value: Any) -> set[str]:
        if isinstance(value, tuple):
            return {name for item in value for name in modules(item)}
        if isinstance(value, Kernel):
            return modules((value.run, value.supports, value.workspace, value.native, value.layouts))
        return {str(getattr(value, "__module__", None))}

    above = tuple(f"nnc.{name}." for name in stored._ABOVE)
    columns = {
        name
        for name, column in ATTRIBUTES.items()
        for command in [*column]  # kernels are loaded on the way
        if any(f"{module}.".startswith(above) for module in modules(column[command]))
    }
    assert columns <= {"batch", "derivative"}, "transforms read these; lowering does not"
    sources = [
        path.read_text()
        for folder in ("lower", "backends", "commands", "graph")
        for path in (NNC / folder).rglob("*.py")
    ]
    assert sources and not [
        line
        for text in sources
        for line in text.splitlines()
        if re.match(rf"(from|import) nnc\.({'|'.join(stored._ABOVE)})\b", line)
    ]


def test_names_and_equal_source_lines_tell_programs_apart(bench: Workbench) -> None:
    def named(x: Any, w: Any) -> Any:
        y = x @ w
        return nnp.exp(y) + 1

    def on_one_line(x: Any, w: Any) -> Any:
        return nnp.exp(x @ w) + 1

    on_one_line.__name__ = on_one_line.__qualname__ = "named"
    graphs = [nnc.make_graph(f)(X, W) for f in (named, on_one_line)]
    graphs.append(replace(graphs[0], name="another"))
    for graph in graphs:
        bench.pipelines.clear()
        bench.lower(graph)
        assert bench.pipelines
    assert len(bench.files()) == 3


@pytest.mark.parametrize("damage", ["cut", "changed", "emptied", "another form"])
def test_a_damaged_entry_does_not_count(bench: Workbench, damage: str) -> None:
    graph = nnc.make_graph(training)(X, W)
    expected = describe(bench.lower(graph))
    (file,) = bench.files()
    content = file.read_bytes()
    if damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "changed":
        place = content.index(b"\n") + 100
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    elif damage == "emptied":
        file.write_bytes(b"")
    else:  # whole, but nothing that this version would write
        _, key = json.loads(content[32:].partition(b"\n")[0])
        Cache(bench.folder).write_bytes("programs", key, b"no program", b"no parts")
    bench.pipelines.clear()
    assert describe(bench.lower(graph)) == expected
    assert bench.pipelines
    bench.pipelines.clear()
    bench.lower(graph)
    assert not bench.pipelines


def test_a_program_stored_with_other_kernels_is_lowered_anew(bench: Workbench) -> None:
    def others(command: Command, specs: tuple[TensorSpec, ...], params: Any, machine: Target) -> Kernel:
        return replace(choose_kernel(command, specs, params, machine), backend="another")

    graph = nnc.make_graph(training)(X, W)
    bench.lower(graph)
    bench.pipelines.clear()
    assert "[another]" in bench.lower(graph, others).as_text()
    assert bench.pipelines


@pytest.mark.usefixtures("own_registries")
def test_programs_with_commands_of_other_packages_are_not_stored(bench: Workbench) -> None:
    halved = register("halved_by_a_test", Rules(infer=lambda x: x, reference=lambda x: x / 2))
    x = np.ones(3, np.float32)
    for _ in range(2):
        bench.pipelines.clear()
        program = bench.lower(nnc.make_graph(lambda x: halved(x) + 1)(x))
        assert bench.pipelines
        np.testing.assert_array_equal(program.run([x])[0], np.full(3, 1.5, np.float32))
    assert not bench.files()


@pytest.mark.usefixtures("own_registries")
def test_programs_through_passes_of_other_packages_are_neither_stored_nor_found(bench: Workbench) -> None:
    graph = nnc.make_graph(training)(X, W)
    bench.lower(graph)
    stored_before = bench.files()
    ran = []
    register_pass("test_look", phase="fuse")(lambda graph, options: ran.append(1) or graph)
    for _ in range(2):
        ran.clear()
        bench.lower(graph)
        assert ran
    assert bench.files() == stored_before


@pytest.mark.parametrize("call", [lambda f, x: nnc.debug.callback(f, x), lambda f, x: nnc.pure_callback(f, x, x)])
def test_functions_within_a_graph_are_not_stored(bench: Workbench, call: Any) -> None:
    def f(x: Any) -> Any:
        return x + 1, call(lambda x: x, x)

    graph = nnc.make_graph(f)(nnp.ones(3))
    bench.lower(graph)
    bench.lower(graph)
    assert not bench.files()


def test_large_constants_are_not_stored(bench: Workbench) -> None:
    for size in (1 << 19, 1 << 9):
        b = GraphBuilder("plus")
        x = b.input((size,), "float32")
        bench.lower(b.build(b.add("add", x, b.constant(np.arange(size, dtype=np.float32)))))
        assert len(bench.files()) == (size == 1 << 9)


def test_where_nothing_was_kept_nothing_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Graph] = []

    def structural_hash(graph: Graph) -> str:
        asked.append(graph)
        return "a graph"

    monkeypatch.setattr(stored, "structural_hash", structural_hash)
    monkeypatch.setattr(stored, "files_digest", lambda kind: "these files")
    graph = nnc.make_graph(lambda x: x + 1.0)(nnp.ones(3))
    place = stored.find_place(graph, Options(cache_folder=tmp_path), native=True, choice="any")
    assert place is not None and place.read() is None and not asked
    cache = Cache(tmp_path)
    assert not cache.holds("programs")
    cache.write_bytes("programs", {"of": "something else"}, b"")
    assert cache.holds("programs") and not cache.holds("objects")
    assert place.read() is None and asked == [graph]


def test_constants_that_were_written_to_meanwhile_keep_a_program_from_being_stored(bench: Workbench) -> None:
    memory = np.ones(3, np.float32)
    seen = memory.view()
    seen.flags.writeable = False
    b = GraphBuilder()
    x = b.input((3,), "float32")
    graph = b.build(b.add("mul", x, b.constant(seen)))
    assert next(iter(graph.constants.values())).base is memory
    program = lower(graph, Options(), choose_kernel, compiler())
    for written in (False, True):
        place = stored.find_place(graph, Options(cache_folder=bench.folder / str(written)), native=True, choice="any")
        assert place is not None and place.read() is None
        memory[0] += written
        place.keep(program)
        assert place.cache.holds("programs") is not written


SCRIPT = """
import json, sys
import numpy as np
import nnc, nnc.numpy as nnp
import nnc.run.store.stored as stored
stored.files_digest = lambda kind: "these files"  # another process may be changing them

namespace = {"nnp": nnp}
lines = int(sys.argv[2]) * "\\n" + "def f(x, w):\\n    y = nnp.tanh(x @ w)\\n    return nnp.sum(y / nnp.max(y))\\n"
exec(compile(lines, sys.argv[1], "exec"), namespace)
x, w = (np.linspace(-1, 1, 12, dtype=np.float32).reshape(shape) for shape in ((3, 4), (4, 3)))
made = nnc.compile(nnc.value_and_grad(namespace["f"])).lower(x, w).compile()
value, gradient = made(x, w)
print(json.dumps({
    "parts": [part for part, _ in made.timings.rows], "text": made.as_text(), "plan": str(made.memory_plan),
    "schedule": str(made.schedule), "value": float(value), "gradient": gradient.tolist(),
}))
"""


def test_another_process_finds_the_program_and_points_to_the_present_lines(tmp_path: Path) -> None:
    def run(lines: int) -> dict[str, Any]:
        environment = {**os.environ, "NNC_CACHE_DIR": str(tmp_path), "NNC_VERIFY": "0"}
        place = str(tmp_path / "user.py")
        command = [sys.executable, "-c", SCRIPT, place, str(lines)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    first, second = run(0), run(7)
    assert any(part.startswith("pass simplify") for part in first["parts"])
    assert not [part for part in second["parts"] if part.startswith("pass ") and part != "pass dce"]
    assert "binding buffers" not in second["parts"]
    assert "user.py:2 in f" in first["text"]
    for name in ("text", "plan", "schedule"):
        assert second[name] == first[name].replace("user.py:2", "user.py:9").replace("user.py:3", "user.py:10"), name
    assert (first["value"], first["gradient"]) == (second["value"], second["gradient"])
