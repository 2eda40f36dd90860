"""Products by cuBLASLt: descriptions, strides, batches, types and the workspace, on a stand-in for the library."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.device import find_device
from nnc.errors import ArgumentError, DeviceError
from tests.devices.cuda.cublaslt import MATMUL, FakeCublasLt
from tests.devices.cuda.machine import Machine
from tests.devices.test_ptx import check_close

TOLERANCE = {"float64": 1e-13, "float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}


def drawn(*shape: int, dtype: str = "float32") -> Any:
    return nnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape), dtype)


def check(f: Any, machine: Machine, *arrays: Any, dtype: str = "float32", **settings: Any) -> None:
    wanted = nnc.compile(f)(*arrays)
    compiled = nnc.compile(f, **settings)
    for _ in range(2):
        check_close(compiled(*nnc.device_put(arrays, machine.name)), wanted, TOLERANCE[dtype])


CASES = {
    "plain": (lambda x, y: x @ y, (5, 7), (7, 3)),
    "left transposed": (lambda x, y: x.T @ y, (7, 5), (7, 3)),
    "right transposed": (lambda x, y: x @ y.T, (5, 7), (3, 7)),
    "both transposed": (lambda x, y: x.T @ y.T, (7, 5), (3, 7)),
    "result transposed": (lambda x, y: (x @ y).T, (5, 7), (7, 3)),
    "one row": (lambda x, y: x @ y, (1, 7), (7, 3)),
    "one column": (lambda x, y: x @ y, (5, 7), (7, 1)),
    "vector": (lambda x, y: x @ y, (7,), (7, 3)),
    "inner": (lambda x, y: x @ y, (7,), (7,)),
    "outer": (lambda x, y: nnp.outer(x, y), (5,), (3,)),
    "batched": (lambda x, y: x @ y, (4, 5, 7), (4, 7, 3)),
    "batched twice": (lambda x, y: nnp.einsum("abij,bajk->abik", x, y), (2, 3, 5, 7), (3, 2, 7, 4)),
    "shared right": (lambda x, y: x @ y, (4, 5, 7), (7, 3)),
    "shared left": (lambda x, y: x @ y, (5, 7), (4, 7, 3)),
    "heads": (lambda x, y: nnp.einsum("bthd,bshd->bhts", x, y), (2, 5, 3, 8), (2, 6, 3, 8)),
    "slices": (lambda x, y: x[:, 1:6] @ y[2:7], (4, 9), (9, 3)),
    "strided rows": (lambda x, y: x[::2] @ y, (6, 7), (7, 3)),
    "strided columns": (lambda x, y: x[:, ::2] @ y, (6, 8), (4, 3)),
    "two sums": (lambda x, y: nnp.einsum("aij,jia->a", x, y), (2, 3, 4), (4, 3, 2)),
    "no rows": (lambda x, y: x @ y, (0, 7), (7, 3)),
    "no terms": (lambda x, y: x @ y, (5, 0), (0, 3)),
}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", CASES)
def test_a_product_is_the_cpus(case: str, dtype: str, machine: Machine, library: FakeCublasLt) -> None:
    f, *shapes = CASES[case]
    check(f, machine, *(drawn(*shape, dtype=dtype) for shape in shapes), dtype=dtype)


def test_a_batch_is_one_call(machine: Machine, library: FakeCublasLt) -> None:
    nnc.compile(lambda x, y: x @ y)(*nnc.device_put((drawn(4, 5, 7), drawn(4, 7, 3)), machine.name))
    machine.sim.synchronize()
    (call,) = library.calls
    assert call["d"] == {"kind": 0, "rows": 3, "columns": 5, "leading": 3, 5: 4, 6: 15}
    assert call["a"] == {"kind": 0, "rows": 3, "columns": 7, "leading": 3, 5: 4, 6: 21}
    assert call["b"] == {"kind": 0, "rows": 7, "columns": 5, "leading": 7, 5: 4, 6: 35}


def test_precision_selects_the_sums_of_float32_alone(machine: Machine, library: FakeCublasLt) -> None:
    for dtype, precision, sums in (
        ("float32", None, 68), ("float32", "float32", 68), ("float32", "tf32", 77), ("float32", "bfloat16", 75),
        ("float64", "tf32", 70), ("bfloat16", "tf32", 68), ("float16", None, 68),
    ):  # fmt: skip
        check(
            lambda x, y: x @ y,
            machine,
            drawn(5, 7, dtype=dtype),
            drawn(7, 3, dtype=dtype),
            dtype=dtype,
            precision=precision,
        )
        assert library.calls[-1]["sums"] == sums


def test_the_environment_sets_the_precision(
    machine: Machine, library: FakeCublasLt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNC_PRECISION", "tf32")
    check(lambda x, y: x @ y, machine, drawn(5, 7), drawn(7, 3))
    assert library.calls[-1]["sums"] == 77


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"'tf16' is no precision of products[^$]*'float32', 'tf32', 'bfloat16'"):
        nnc.compile(lambda x: x, precision="tf16")


def test_a_large_product_gets_a_planned_workspace(machine: Machine, library: FakeCublasLt) -> None:
    x, y = nnc.device_put((drawn(128, 512), drawn(512, 256)), machine.name)
    f = nnc.compile(lambda x, y: nnp.tanh(x @ y))
    check_close(f(x, y), nnp.tanh(drawn(128, 512) @ drawn(512, 256)), 1e-4)
    assert library.calls[-1]["workspace"] == 8 << 20
    assert f.lower(x, y).compile().memory_plan.peak >= 8 << 20


def test_products_without_an_algorithm_run_on_arrays_of_cupy(machine: Machine, library: FakeCublasLt) -> None:
    library.refuses = True
    check(lambda x, y: x @ y, machine, drawn(4, 5, 7), drawn(4, 7, 3))
    assert library.calls == []


def test_integers_and_complex_numbers_run_on_arrays_of_cupy(machine: Machine, library: FakeCublasLt) -> None:
    x = nnp.arange(12).reshape(3, 4)
    for y in (x, x.astype("complex64") * (1 + 2j)):
        f = nnc.compile(lambda x: x @ x.T)
        check_close(f(nnc.device_put(y, machine.name)), f(y))
    assert library.calls == []


def test_a_status_of_the_library_is_worded(machine: Machine, library: FakeCublasLt) -> None:
    library.cublasLtMatmul = MATMUL(lambda *_: 13)
    with pytest.raises(DeviceError, match="cublasLtMatmul of cuBLASLt reports status 13"):
        nnc.compile(lambda x: x @ x)(nnc.device_put(drawn(3, 3), machine.name))


def test_without_the_library_products_run_on_arrays_of_cupy(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("nnc.backends.cuda.libraries.dot"), "load_library", lambda: None)
    check(lambda x, y: x @ y, machine, drawn(5, 7), drawn(7, 3))


def test_a_loop_moves_the_operands_of_its_products(machine: Machine, library: FakeCublasLt) -> None:
    def f(ws: Any, x: Any) -> Any:
        return nnc.scan(lambda x, w: (nnp.tanh(x @ w), x), x, ws)

    check(f, machine, drawn(5, 6, 6), drawn(4, 6))
    assert len(library.calls) >= 10


# -- calls that compiled code makes again --------------------------------------------------------------------------------


@pytest.fixture
def from_python(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The addresses of products that Python queued."""
    calls: list[Any] = []
    kind = importlib.import_module("nnc.backends.cuda.libraries.dot")._Products
    queue = kind.__call__
    monkeypatch.setattr(kind, "__call__", lambda self, *given: (calls.append(given[0]), queue(self, *given))[1])
    return calls


def repeated(body: Any) -> Any:
    """A loop of so many iterations as an array says, which only the device knows."""
    return lambda n, x, *rest: nnc.fori_loop(0, n, lambda i, x: body(i, x, *rest), x)


def run_repeated(body: Any, machine: Machine, *arrays: Any, tolerance: float = 1e-5) -> None:
    f = nnc.compile(repeated(body))
    for n in (9, 0, 4):
        wanted = repeated(body)(n, *arrays)
        check_close(f(*nnc.device_put((np.asarray(n), *arrays), machine.name)), wanted, tolerance)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_loop_repeats_its_products_without_python(
    dtype: str, machine: Machine, library: FakeCublasLt, from_python: list[Any]
) -> None:
    x, w, v = (drawn(*shape, dtype=dtype) / 3 for shape in ((4, 8), (8, 8), (8, 8)))
    run_repeated(lambda i, x, w, v: nnp.tanh((x @ w) @ v.T), machine, x, w, v, tolerance=20 * TOLERANCE[dtype])
    assert len(library.calls) == 2 * (9 + 4) and len(from_python) <= 4


def test_a_bias_and_a_workspace_are_those_of_the_call(
    machine: Machine, library: FakeCublasLt, from_python: list[Any]
) -> None:
    x, w, b = drawn(128, 300) / 20, drawn(300, 300) / 20, drawn(300)
    run_repeated(lambda i, x, w, b: gelu(x @ w + b), machine, x, w, b, tolerance=1e-4)
    assert {(call["workspace"], call["epilogue"]) for call in library.calls} == {(8 << 20, BIAS | GELU)}
    assert len(library.calls) == 13 and len(from_python) <= 4
    biases = drawn(9, 300)  # its rows begin at other places, each of which Python has to note
    run_repeated(lambda i, x, w, b: x @ w + b[i], machine, x, w, biases, tolerance=1e-4)


def test_operands_that_lie_otherwise_are_queued_from_python(
    machine: Machine, library: FakeCublasLt, from_python: list[Any]
) -> None:
    def f(n: Any, x: Any, ws: Any) -> Any:  # rows of 12, 20 and 36 bytes: matrices begin at multiples of 4 or more
        def body(i: Any, x: Any) -> Any:
            return nnc.scan(lambda x, w: (nnp.tanh(w @ x), None), x, ws)[0]

        return nnc.fori_loop(0, n, body, x)

    for width in (3, 5, 9):
        x, ws = drawn(width, 2), drawn(6, width, width)
        compiled, before = nnc.compile(f), len(from_python)
        for n in (3, 1):
            check_close(compiled(*nnc.device_put((np.asarray(n), x, ws), machine.name)), f(n, x, ws), 1e-5)
        assert len(from_python) > before


def generated(seed: int) -> tuple[Any, list[Any], str]:
    """A body of a loop whose products are batched or not, turned, of rows that lie at odd places, with a bias and a second read of
    one operand; the arrays that it reads; and their dtype.
    """
    draw = np.random.default_rng(seed)
    dtype = draw.choice(["float32", "float64", "float16", "bfloat16"])
    rows, width, batch = int(draw.integers(1, 6)), int(draw.integers(1, 9)), int(draw.integers(0, 4))
    turns, adds, moves, shares = (bool(draw.integers(2)) for _ in range(4))
    lead = (batch,) if batch else ()

    def array(*shape: int) -> Any:
        return nnp.asarray(draw.normal(size=shape) / (2 * width), dtype)

    x, w, ws, b = array(*lead, rows, width), array(width, width), array(7, width, width), array(7, width)

    def body(i: Any, x: Any, w: Any, ws: Any, b: Any) -> Any:
        left = ws[i % 7] if moves else w
        y = x @ (left.T if turns else left)
        y = y + b[i % 7] if adds and moves else y + b[0] if adds else y
        return nnp.tanh(y) @ w + (y @ w if shares else 0 * y)

    return body, [x, w, ws, b], str(dtype)


@pytest.mark.parametrize("seed", range(24))
def test_generated_loops_of_products_have_the_results_of_the_cpu(
    seed: int, machine: Machine, library: FakeCublasLt, from_python: list[Any]
) -> None:
    body, arrays, dtype = generated(seed)
    run_repeated(body, machine, *arrays, tolerance=20 * TOLERANCE[dtype])
    assert len(from_python) < len(library.calls)  # some calls were made again


def test_a_status_in_a_later_iteration_is_worded(machine: Machine, library: FakeCublasLt) -> None:
    right, left = library.cublasLtMatmul, [3]

    def fails_later(*arguments: Any) -> int:
        left[0] -= 1
        return 13 if left[0] <= 0 else int(right(*arguments))

    library.cublasLtMatmul = MATMUL(fails_later)
    f = nnc.compile(repeated(lambda i, x, w: x @ w))
    with pytest.raises(DeviceError, match="cublasLtMatmul of cuBLASLt reports status 13"):
        f(*nnc.device_put((np.asarray(5), drawn(4, 4), drawn(4, 4)), machine.name))


def test_each_program_describes_its_bias_itself(machine: Machine, library: FakeCublasLt) -> None:
    """Two threads may set the bias of equal products at once."""
    x, w = drawn(4, 8), drawn(8, 8)
    for b in (drawn(8), drawn(8) + 1):
        f = nnc.compile(lambda x, w, b: x @ w + b)
        check_close(f(*nnc.device_put((x, w, b), machine.name)), x @ w + b, 1e-5)
    assert len({each[8] for each in library.known.values() if 7 in each and 8 in each}) == 2


# -- epilogues ---------------------------------------------------------------------------------------------------------

BIAS, GELU = 4, 32  # bits of cublasLtEpilogue_t


def gelu(x: Any) -> Any:
    return nnc.nn.gelu(x)


EPILOGUES = {
    "bias": (lambda x, w, b: x @ w + b, BIAS, (5, 7), (7, 4), (4,)),
    "bias first": (lambda x, w, b: b + x @ w, BIAS, (5, 7), (7, 4), (4,)),
    "gelu": (lambda x, w: gelu(x @ w), GELU, (5, 7), (7, 4)),
    "gelu of a sum": (lambda x, w, b: gelu(x @ w + b), GELU | BIAS, (5, 7), (7, 4), (4,)),
    "batch of rows": (lambda x, w, b: gelu(x @ w + b), GELU | BIAS, (2, 5, 7), (7, 4), (4,)),
    "batched": (lambda x, w, b: x @ w + b, BIAS, (2, 5, 7), (2, 7, 4), (4,)),
    "transposed": (lambda x, w, b: x @ w.T + b, BIAS, (5, 7), (4, 7), (4,)),
    "bias of a slice": (lambda x, w, b: x @ w + b[2:6], BIAS, (5, 7), (7, 4), (9,)),
    "strided bias": (lambda x, w, b: x @ w + b[::2], None, (5, 7), (7, 4), (8,)),
    "bias of rows": (lambda x, w, b: x @ w + b[:, None], 0, (5, 7), (7, 4), (5,)),
    "bias of elements": (lambda x, w, b: x @ w + b, 0, (5, 7), (7, 4), (5, 4)),
    "relu": (lambda x, w: nnc.nn.relu(x @ w), 0, (5, 7), (7, 4)),
    "gelu by erfc": (lambda x, w: nnc.nn.gelu(x @ w, approximate=False), 0, (5, 7), (7, 4)),
    "silu": (lambda x, w: nnc.nn.silu(x @ w), 0, (5, 7), (7, 4)),
    "product read twice": (lambda x, w, b: (x @ w + b, x @ w), 0, (5, 7), (7, 4), (4,)),
    "vector": (lambda x, w, b: x @ w + b, 0, (5, 7), (7,), (5,)),
}


@pytest.mark.parametrize("case", EPILOGUES)
def test_the_library_computes_an_epilogue_where_it_has_the_values_of_nnc(
    case: str, machine: Machine, library: FakeCublasLt
) -> None:
    f, epilogue, *shapes = EPILOGUES[case]
    check(f, machine, *(drawn(*shape) for shape in shapes))
    assert {call["epilogue"] for call in library.calls} == (set() if epilogue is None else {epilogue})


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_epilogues_are_computed_in_floats_of_32_and_16_bits(
    dtype: str, machine: Machine, library: FakeCublasLt
) -> None:
    arrays = (drawn(*shape, dtype=dtype) for shape in ((5, 7), (7, 4), (4,)))
    check(lambda x, w, b: gelu(x @ w + b), machine, *arrays, dtype=dtype)
    assert {call["epilogue"] for call in library.calls} == {0 if dtype == "float64" else GELU | BIAS}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_without_an_algorithm_epilogues_run_on_arrays_of_cupy(
    dtype: str, machine: Machine, library: FakeCublasLt
) -> None:
    library.refuses = True
    arrays = (drawn(*shape, dtype=dtype) for shape in ((5, 7), (7, 4), (4,)))
    check(lambda x, w, b: gelu(x @ w + b), machine, *arrays, dtype=dtype)
    assert library.calls == []


def test_explain_names_the_library_that_multiplies(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("nnc.backends.cuda.libraries.dot")
    cases = (3, FakeCublasLt(machine), "by cuBLASLt: with_epilogue (1)"), (4, None, "by CuPy: dot (1)")
    for n, library, text in cases:  # of sizes of their own, since a stored program keeps its epilogue
        monkeypatch.setattr(module, "load_library", lambda made=library: made)
        f = nnc.compile(lambda x, b: x @ x + b)
        f(*nnc.device_put((drawn(n, n), drawn(n)), machine.name))
        assert nnc.debug.explain(f).endswith(f"{machine.name} runs {text}")


def test_the_fastest_algorithm_is_taken_and_kept_for_later_processes(
    machine: Machine, library: FakeCublasLt, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NNC_CACHE_DIR", str(tmp_path))
    library.plans, machine.times = 3, [5.0, 3.0, 4.0]
    draw = np.random.default_rng(0)
    x, y = (draw.normal(size=(256, 256)).astype(np.float32) for _ in range(2))
    small = x[:8, :8]

    def run() -> Any:
        """Runs the product by a device without algorithms, which another process has."""
        find_device(machine.name, "a test")._made.clear()
        f = nnc.compile(lambda x, y: x @ y)
        there = nnc.device_put((x, y), machine.name)
        for _ in range(4):  # also as a captured graph
            check_close(f(*there), x @ y, 1e-5)
        return f

    run()
    assert machine.measured == 3 and {call["place"] for call in library.calls[-2:]} == {1}
    run()
    assert machine.measured == 3 and library.calls[-1]["place"] == 1
    check_close(nnc.compile(lambda x: x @ x)(nnc.device_put(small, machine.name)), small @ small, 1e-5)
    assert machine.measured == 3 and library.calls[-1]["place"] == 0  # it takes no longer than its launch


def test_an_algorithm_that_is_hardly_faster_is_not_taken(machine: Machine, library: FakeCublasLt) -> None:
    library.plans, machine.times = 2, [5.0, 4.9]
    x = nnc.device_put(np.ones((256, 260), np.float32), machine.name)
    check_close(nnc.compile(lambda x: x @ x.T)(x), np.full((256, 256), 260, np.float32), 1e-5)
    assert machine.measured == 2 and library.calls[-1]["place"] == 0


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_sum_over_axes_that_lie_unevenly_is_added_up(dtype: str, machine: Machine, library: FakeCublasLt) -> None:
    draw = np.random.default_rng(0)
    x, y = (nnp.asarray(draw.normal(size=shape), dtype) for shape in ((4, 6, 5), (6, 4, 7)))

    def f(x: Any, y: Any) -> Any:
        return nnp.einsum("abi,baj->ij", x, y), nnp.einsum("abi,baj->ji", x, y)

    wanted = f(x, y)
    for _ in range(3):
        check_close(
            nnc.compile(f)(*nnc.device_put((x, y), machine.name)), wanted, 3e-2 if dtype == "bfloat16" else 1e-5
        )
    assert any(call["adds"] for call in library.calls) == (dtype != "bfloat16")
