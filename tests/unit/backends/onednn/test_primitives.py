"""oneDNN is loaded, and its primitives are made, by threads while other things are done."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.onednn import calls, primitives
from nnc.backends.onednn.library import MemoryDesc, PrimitiveDesc, library
from nnc.backends.onednn.primitives import Primitive, begin_primitives
from nnc.base import dtypes
from nnc.base.target import Target
from nnc.errors import BackendError
from nnc.run.native_frame import NativeFrame

pytestmark = pytest.mark.skipif(library() is None or compiler() is None, reason="there is no oneDNN here")

LOADING = """
import time
import nnc
from nnc import nn
from nnc.backends.onednn import library as module
from nnc.graph import command, expect_kernels

def is_open():
    with open("/proc/self/maps") as maps:
        return "libdnnl" in maps.read()

conv = lambda x, w: nn.conv(x, w)
nnc.make_graph(conv)(*(nnc.ShapeDtypeStruct(shape, "float32") for shape in ((1, 2, 8, 8), (2, 2, 3, 3))))
expect_kernels([command("add")])
time.sleep(0.1)
assert not is_open()
expect_kernels([command("conv")])
while not is_open():
    time.sleep(0.001)
assert module.library.cache_info().currsize == 0 and module.library() is not None
print("loaded")
"""


def refused() -> Any:
    """A description that the library makes nothing of."""

    class Nothing:
        handle = 0

    return Nothing()


def copying(rows: int) -> PrimitiveDesc:
    """The description of a copy that turns a matrix."""
    shape = (rows, 8)
    source, target = (MemoryDesc.strided(shape, dtypes.float32, s) for s in ((32, 4), (4, 4 * rows)))
    return PrimitiveDesc.reorder(source, target)


@pytest.mark.skipif(sys.platform != "linux", reason="files are brought into memory on Linux alone")
def test_the_library_is_loaded_by_a_thread_once_a_command_is_to_be_lowered_that_it_has_kernels_of() -> None:
    run = subprocess.run(
        [sys.executable, "-c", LOADING],
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (run.returncode, run.stdout, run.stderr) == (0, "loaded\n", "")


def test_lowering_says_at_first_which_kernels_it_will_look_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def expect(targets: Any, machine: Target) -> None:
        assert not seen and machine.kind == "cpu"
        seen.extend(target.name for target in targets)

    monkeypatch.setattr("nnc.compiled.pipeline.expect_kernels", expect)
    x, w = nnp.ones((1, 2, 8, 8)), nnp.ones((2, 2, 1, 1))
    nnc.compile(lambda x, w: nnc.scan(lambda c, _: (nn.conv(c, w), None), x, None, length=3)[0]).lower(x, w).compile()
    assert {"scan", "conv"} <= {*seen} and len(seen) == len({*seen})


def test_where_the_library_is_not_installed_nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnc.backends.onednn.library._find", lambda: None)
    monkeypatch.setattr("nnc.backends.onednn.library.ctypes.CDLL", lambda path: pytest.fail("something was loaded"))
    library_module = sys.modules[PrimitiveDesc.__module__]
    library_module._open()


def test_primitives_are_made_by_a_thread_when_that_is_begun() -> None:
    wanted = [Primitive(copying(rows)) for rows in range(2, 5)]
    assert all(primitive.made is None for primitive in wanted)
    begin_primitives()
    batches = {primitive.batch for primitive in wanted} - {None}
    assert len(batches) <= 1  # they are being made, or were
    handles = [primitive.handle for primitive in wanted]
    assert len(set(handles)) == 3 and all(handles)
    assert [primitive.handle for primitive in wanted] == handles


def test_a_primitive_that_nobody_began_is_made_when_it_is_asked_for_and_the_others_with_it() -> None:
    first, second = Primitive(copying(5)), Primitive(copying(6))
    assert second.handle and first.made is not None
    assert first.handle == first.made.handle != second.handle


def test_threads_that_ask_at_once_get_the_same_primitive() -> None:
    for _ in range(20):
        primitive = Primitive(copying(7))
        start, found = threading.Barrier(4), []

        def ask(primitive: Primitive = primitive, start: threading.Barrier = start, found: Any = found) -> None:
            start.wait()
            found.append(primitive.handle)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        start.wait()
        begin_primitives()
        for thread in threads:
            thread.join()
        assert found == [primitive.handle] * 3


def test_a_primitive_that_the_library_refuses_raises_when_it_is_asked_for_and_harms_no_other() -> None:
    wrong, right = Primitive(refused()), Primitive(copying(9))
    begin_primitives()
    assert right.handle
    for _ in range(2):
        with pytest.raises(BackendError, match="dnnl_primitive_create: invalid arguments"):
            wrong.handle  # noqa: B018


def test_primitives_without_users_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, left = Primitive(copying(10)), Primitive(refused())
    del left
    gc.collect()
    made: list[int] = []
    create = primitives._loop()
    monkeypatch.setattr(
        primitives, "_loop", lambda: (create[0], lambda at, count: made.append(count) or create[1](at, count))
    )
    assert kept.handle and made == [1]


@pytest.mark.unguarded
def test_a_program_begins_its_primitives_before_its_code_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    frame = NativeFrame.__init__

    def begin() -> None:
        seen.append("begin")
        begin_primitives()

    def make(self: NativeFrame, *given: Any) -> None:
        seen.append("frame")
        frame(self, *given)

    monkeypatch.setattr(calls, "begin_primitives", begin)
    monkeypatch.setattr(NativeFrame, "__init__", make)
    rng = np.random.default_rng(0)
    x, w, v = (
        nnp.asarray(rng.normal(size=s).astype("float32")) for s in ((2, 16, 9, 9), (16, 16, 3, 3), (16, 16, 3, 3))
    )
    compiled = nnc.compile(lambda x, w, v: nn.conv(nn.conv(x, w), v))
    np.testing.assert_allclose(compiled(x, w, v), nn.conv(nn.conv(x, w), v), rtol=1e-4, atol=1e-4)
    assert seen.index("begin") < seen.index("frame")
