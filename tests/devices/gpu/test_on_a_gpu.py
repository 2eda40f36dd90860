"""Programs on `cuda:0`, where there is a graphics processor: `pytest -m gpu`.

Commands, programs and training steps have the CPU's results; late errors, memory and streams are those of a device.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from benchmarks.gpu.__main__ import check
from benchmarks.gpu.rows import ROWS, Row
from nnc.device.cuda import number_of_gpus
from nnc.errors import OutOfBoundsError, OutOfMemoryError
from tests.contract.commands.sample import Sample
from tests.contract.commands.test_contract import rows, run
from tests.devices.test_commands_on_ptx import check_near
from tests.devices.test_programs_on_sim import arguments_of
from tests.devices.test_ptx import check_close
from tests.golden.programs import PROGRAMS, Program

DEVICE = "cuda:0"
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not number_of_gpus(), reason="no graphics processor, or no CuPy")]


@rows
def test_a_compiled_command_has_the_results_of_the_cpu(row: Sample) -> None:
    def function(*operands: Any) -> tuple[Any, ...]:
        return run(row, operands)

    wanted = nnc.compile(function)(*map(np.asarray, row.operands))
    given = [nnc.device_put(np.asarray(x), DEVICE) for x in row.operands]
    check_near(row, nnc.compile(function, device=DEVICE)(*given), wanted, DEVICE)


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_a_program_has_the_results_of_the_cpu_in_every_call(make: Callable[[], Program]) -> None:
    program = make()
    arguments = arguments_of(program)
    f = nnc.compile(program.fun)
    wanted = f(*arguments)
    for _ in range(5):
        check_close(f(*nnc.device_put(arguments, DEVICE)), wanted, 1e-4)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_of_the_benchmark_has_the_results_of_the_cpu(row: Row) -> None:
    assert check(row, DEVICE) is None


def test_the_same_bits_in_every_run() -> None:
    x = nnc.device_put(np.random.default_rng(0).normal(size=(700, 1300)).astype(np.float32), DEVICE)
    f = nnc.compile(lambda x: (nnp.sum(x), nnp.sum(x, axis=0), nnc.nn.softmax(x @ x.T, axis=-1)))
    first = [np.asarray(y) for y in f(x)]
    for _ in range(20):
        assert all(np.array_equal(a, np.asarray(b)) for a, b in zip(first, f(x), strict=True))


def test_a_refused_index_is_reported_when_a_result_is_read() -> None:
    f = nnc.compile(lambda x, i: nnp.take(x, i, axis=0) * 2)
    x, good, bad = nnc.device_put((np.ones((6, 4)), np.array([0, 5]), np.array([0, 77])), DEVICE)
    late = nnp.sum(f(x, bad))
    with pytest.raises(OutOfBoundsError, match="index 77"):
        float(late)
    assert np.asarray(f(x, good)).sum() == 16


def test_sent_arrays_are_not_overwritten_while_the_device_reads_them() -> None:
    f = nnc.compile(lambda x: nnp.sum(nnp.tanh(x) * 0 + x))
    sums = [f(nnc.device_put(np.full(100_000, i, np.float32), DEVICE)) for i in range(200)]
    assert [float(x) for x in sums] == [100_000.0 * i for i in range(200)]


def test_threads_that_never_used_the_device_launch_kernels() -> None:
    f = nnc.compile(lambda x: nnp.sum(nnp.tanh(x) * 0 + x))
    arrays = [nnc.device_put(np.full(100_000, i, np.float32), DEVICE) for i in range(100)]
    f(arrays[0])  # known from here on, so that a thread does nothing but launch it
    with ThreadPoolExecutor(8) as pool:
        assert [float(x) for x in pool.map(f, arrays)] == [100_000.0 * i for i in range(100)]


def test_too_much_memory_is_an_error_and_loses_nothing() -> None:
    x = nnc.device_put(np.ones(1000, np.float32), DEVICE)
    with pytest.raises(OutOfMemoryError, match="do not fit"):
        nnp.broadcast_to(x, (1 << 30, 1000)) + 1
    assert float(nnp.sum(x)) == 1000


@pytest.mark.parametrize("dtype", ["bool", "int64", "float16", "float32", "float64", "complex64"])
def test_memory_is_shared_with_cupy(dtype: str) -> None:
    cupy = pytest.importorskip("cupy")
    values = np.arange(6000).reshape(60, 100).astype(dtype)
    x = nnc.device_put(values, DEVICE)
    y = nnp.concatenate([x, x])
    for lent in (cupy.from_dlpack(y), cupy.asarray(y)):
        assert lent.data.ptr == y.memory.block.address
        assert np.array_equal(lent.get(), np.concatenate([values, values]))
    theirs = cupy.asarray(values)
    mine = nnp.asarray(theirs)
    assert mine.device == DEVICE and mine.memory.block.address == theirs.data.ptr
    assert np.array_equal(np.asarray(mine), values)
    assert np.array_equal(np.asarray(nnp.asarray(theirs[1::2].T)), values[1::2].T)
    assert np.array_equal(np.asarray(nnp.asarray(theirs.ravel()[1:])), values.ravel()[1:])


def test_memory_is_shared_with_pytorch_in_any_order() -> None:
    torch = pytest.importorskip("torch")
    f = nnc.compile(lambda x, w: nnp.tanh(x @ w))
    w = nnc.device_put(np.random.default_rng(0).normal(size=(512, 512)).astype(np.float32), DEVICE)
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for seed in range(50):
                tensor = torch.full((512, 512), float(seed), device="cuda") / 100
                y = torch.from_dlpack(f(tensor, w)) + tensor
                del tensor
                wanted = np.tanh(np.full((512, 512), seed / 100, np.float32) @ np.asarray(w)) + np.float32(seed) / 100
                assert np.allclose(y.cpu().numpy(), wanted, atol=1e-4)
    half = torch.ones(300, dtype=torch.bfloat16, device="cuda")
    assert nnp.asarray(half).dtype == nnc.base.dtypes.bfloat16
    assert torch.from_dlpack(nnp.asarray(half) * 2).cpu().float().tolist() == [2.0] * 300
    with pytest.raises(nnc.errors.ArgumentTypeError):
        nnp.asarray(torch.ones(3, device="cuda", requires_grad=True))
