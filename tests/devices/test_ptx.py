"""Programs on `ptx:0`: printed kernels in the interpreter of PTX have the results of the CPU, and their mistakes are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn, optim
from nnc.base import dtypes
from nnc.device import find_device
from nnc.errors import DeviceError, OutOfBoundsError
from nnc.lower.kernels.launch import DeviceKernel
from nnc.nn.models.resnet import Bottleneck
from nnc.run.device_frame import DeviceFrame
from nnc.run.launches import Launches
from nnc.run.program import Program as Lowered
from nnc.run.queued_code import QueuedCode
from nnc.testing.devices.interpreted import PtxDevice
from nnc.testing.devices.interpreted_program import InterpretedModule
from tests.devices.test_programs_on_sim import arguments_of
from tests.golden.programs import PROGRAMS, Program, array, classification_step

KEYS = nnc.random.split(nnc.random.key(0), 3)
X = np.random.default_rng(0).normal(size=(6, 40)).astype(np.float32)


def there(x: Any = X) -> Any:
    return nnc.device_put(x, "ptx:0")


def lowered(f: Callable[..., Any], *args: Any) -> Lowered:
    executable, _ = nnc.compile(f).find(*nnc.device_put(args, "ptx:0"))
    assert executable is not None
    return executable._program


def check_close(found: Any, wanted: Any, tolerance: float = 2e-5) -> None:
    """Sums of floats are in another order than on the CPU."""
    for x, y in zip(nnc.tree.leaves(found), nnc.tree.leaves(wanted), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype
        if dtypes.is_float(dtypes.as_dtype(x.dtype)):
            x, y = x.astype(np.float64), y.astype(np.float64)
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * float(np.abs(y).max(initial=0)))
        else:
            assert np.array_equal(x, y)


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_a_program_has_the_results_of_the_cpu_in_every_call(make: Callable[[], Program]) -> None:
    program = make()
    arguments = arguments_of(program)
    f = nnc.compile(program.fun)
    wanted = f(*arguments)
    for _ in range(3):  # the third one may be a captured graph
        check_close(f(*nnc.device_put(arguments, "ptx:0")), wanted)
    assert lowered(program.fun, *arguments).printed, "its fused steps are printed"


def bottleneck() -> Program:
    """A training step of a bottleneck block, NHWC or not as its layout is, with Adam."""
    make = lambda: nn.Sequential(Bottleneck(16, 8, 2, key=KEYS[0]), nn.GlobalAvgPool(), nn.Linear(32, 5, key=KEYS[1]))
    images, labels = array(4, 16, 8, 8), array(4, dtype=np.int64)
    step, arguments = classification_step(make, optim.adam(1e-3), images, labels)
    return Program("bottleneck", step, arguments)


def small_transformer(dtype: Any) -> Program:
    """A training step of a causal language model, gradients and Adam included."""
    params = {
        "embedding": nn.Embedding(30, 32, key=KEYS[0]),
        "layer": nn.TransformerEncoderLayer(32, 4, key=KEYS[1], norm_first=True, activation=nn.gelu),
        "head": nn.Linear(32, 30, key=KEYS[2]),
    }
    params = nnc.tree.map(lambda x: x.astype(dtype) if x.dtype == np.float32 else x, params)
    optimizer = optim.adam(1e-3)

    def loss(params: Any, tokens: Any) -> Any:
        x = params["layer"](params["embedding"](tokens[:, :-1]), is_causal=True)
        return nnp.mean(nn.softmax_cross_entropy(params["head"](x).astype("float32"), tokens[:, 1:]))

    def step(params: Any, state: Any, tokens: Any) -> Any:
        value, grads = nnc.value_and_grad(loss)(params, tokens)
        updates, state = optimizer.update(grads, state, params)
        return grads, optim.apply_updates(params, updates), state, value

    return Program("transformer", step, (params, optimizer.init(params), array(2, 17, dtype=np.int64)))


def test_a_training_step_of_a_bottleneck_block_has_the_results_of_the_cpu() -> None:
    program = bottleneck()
    arguments = arguments_of(program)
    f = nnc.compile(program.fun)
    check_close(f(*nnc.device_put(arguments, "ptx:0")), f(*arguments), 2e-4)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-5), ("bfloat16", 4e-2)])
def test_a_training_step_of_a_transformer_has_the_results_of_the_cpu(dtype: str, tolerance: float) -> None:
    """Gradients are compared by the size of the largest: some are 0 but for rounding, which Adam's first step makes 1 or -1."""
    program = small_transformer(dtype)
    arguments = arguments_of(program)
    f = nnc.compile(program.fun)
    (grads, _, _, value), (wanted, params, _, loss) = f(*nnc.device_put(arguments, "ptx:0")), f(*arguments)
    check_close(value, loss, tolerance)
    size = max(float(np.abs(np.asarray(x).astype(np.float64)).max()) for x in nnc.tree.leaves(wanted))
    for x, y in zip(nnc.tree.leaves(grads), nnc.tree.leaves(wanted), strict=True):
        difference = np.abs(np.asarray(x).astype(np.float64) - np.asarray(y).astype(np.float64))
        assert x.dtype == y.dtype and float(difference.max()) <= tolerance * size
    printed = lowered(program.fun, *arguments).printed
    assert len(printed) >= 10 and nnc.tree.leaves(params)


def test_commands_run_by_themselves() -> None:
    x, y = there(), there(X[::-1].copy())
    check_close(
        [x + y, nnp.exp(x), x.sum(1), nnp.sort(x), x.T, x[1:, ::2]],
        [X + X[::-1], np.exp(X), X.sum(1), np.sort(X), X.T, X[1:, ::2]],
    )
    assert (x + 1).device == "ptx:0" and float((x * 0 + 3).mean()) == 3


def test_streams_in_every_order_have_one_result() -> None:
    f = nnc.compile(lambda x: (nnp.exp(x).sum(0), nnp.sort(x)[1:] + 1, nnp.tanh(x @ x.T).sum()), streams=3)
    device = find_device("ptx:0", "test")
    assert isinstance(device, PtxDevice)
    results = set()
    for seed in range(6):
        device.queues.reseed(seed)
        results.add(b"".join(np.asarray(x).tobytes() for x in f(there())))
    assert len(results) == 1


def test_an_index_out_of_range_is_told_with_the_line() -> None:
    pick = nnc.compile(lambda x, i: nnp.take(x, i, axis=1) * 2)
    check_close(pick(there(), there(np.array([3, 5]))), X[:, [3, 5]] * 2)
    with pytest.raises(OutOfBoundsError, match=r"index 40 is out of range for axis 1[\s\S]*test_ptx.py"):
        np.asarray(pick(there(), there(np.array([3, 40]))))
    check_close(pick(there(), there(np.array([0, 0]))), X[:, [0, 0]] * 2)


def test_without_a_compiler_all_steps_run_by_their_references(monkeypatch: Any) -> None:
    monkeypatch.setenv("NNC_NATIVE", "0")
    f = nnc.compile(lambda x: nnp.tanh(x).sum(1))
    check_close(f(there()), np.tanh(X).sum(1))


def test_commands_without_a_printed_kernel_are_listed() -> None:
    f = nnc.compile(lambda x: nnp.linalg.inv(nnp.tanh(x) @ x.T) + nnp.linalg.inv(x[:, :6]))
    f(X)
    assert nnc.debug.explain(f).endswith("because it was the first call")
    f(there())
    assert "because the arguments are on ptx:0, and were on cpu" in nnc.debug.explain(f)
    assert nnc.debug.explain(f).endswith("; ptx:0 runs by their references on the host: dot (1), solve (2)")


# -- planted mistakes --------------------------------------------------------------------------------------------------


def run_changed(f: Callable[..., Any], change: Callable[[DeviceKernel], DeviceKernel], *args: Any) -> None:
    """Runs a program whose printed kernels are changed."""
    program = lowered(f, *args)
    parts, code = program.parts(), program.code
    assert code is not None
    other = replace(parts, printed={key: change(kernel) for key, kernel in parts.printed.items()})
    changed = program.with_code(QueuedCode(code.outside, lambda: other, code.compiler))
    device = find_device("ptx:0", "test")
    assert isinstance(device, PtxDevice)
    frame = DeviceFrame(changed, device, InterpretedModule)
    outputs = frame.queue([there(x).memory for x in args])
    for memory, view in zip(outputs, program.bound.outputs, strict=True):
        memory.fetch(view.spec.shape, view.spec.dtype)


def test_an_element_that_no_thread_writes_is_told() -> None:
    x = np.ones((64, 64), np.float32)
    fewer = lambda kernel: replace(kernel, launches=tuple(each._replace(grid=(1, 1, 1)) for each in kernel.launches))
    with pytest.raises(DeviceError, match=r"3072 elements of output 0 were not written, the first at \(16, 0\)"):
        run_changed(lambda x: nnp.tanh(x) + 1, fewer, x)


def test_threads_beyond_the_end_are_told() -> None:
    more = lambda kernel: replace(kernel, launches=tuple(each._replace(grid=(9, 1, 1)) for each in kernel.launches))
    with pytest.raises(DeviceError, match="outside of all regions"):
        run_changed(lambda x: nnp.tanh(x) + 1, more, np.ones((64, 64), np.float32))


def test_operands_in_another_order_are_told() -> None:
    def turn(kernel: DeviceKernel) -> DeviceKernel:
        return replace(kernel, launches=tuple(x._replace(operands=x.operands[::-1]) for x in kernel.launches))

    with pytest.raises(DeviceError, match="not writable|which nobody wrote"):
        run_changed(lambda x: nnp.tanh(x) + 1, turn, np.ones((64, 64), np.float32))


# -- launches ----------------------------------------------------------------------------------------------------------


def test_launches_of_a_step_have_words_of_their_own() -> None:
    program = lowered(lambda x: (nnp.tanh(x) * 2, nnp.sort(x)), X)
    printed = {key: replace(kernel, launches=kernel.launches * 3) for key, kernel in program.printed.items()}
    launches = Launches(program.planned, program.schedule, printed)
    words = [launches.kernel_words[id(step)] + i for step in launches.kernels for i in range(len(launches.of(step)))]
    assert len(set(words)) == len(words) == 3 * len(printed) + (len(launches.kernels) - len(printed))
    assert launches.fetch_word > max(words)


def test_few_long_rows_are_summed_in_parts_with_a_workspace() -> None:
    x = np.random.default_rng(1).normal(size=(4000, 64)).astype(np.float32)
    f = nnc.compile(lambda x: nnp.sum(nnp.abs(x), axis=0))
    check_close(f(there(x)), f(x))
    (kernel,) = lowered(lambda x: nnp.sum(nnp.abs(x), axis=0), x).printed.values()
    assert len(kernel.launches) == 2
