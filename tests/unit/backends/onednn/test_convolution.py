"""Convolutions of oneDNN against the reference: every command, geometry, dtype and way in which operands can lie."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nnc
from nnc.backends.choose import choose_kernel
from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.cpu.threads.threads import find_openmp
from nnc.backends.native_runs import run_native
from nnc.backends.onednn import convolution, convolution_choice
from nnc.backends.onednn.library import MemoryDesc, library
from nnc.base import dtypes
from nnc.commands.conv import conv, conv_input_grad, conv_weight_grad
from nnc.commands.windows import window_shape
from nnc.graph import TensorSpec, command, infer_specs, reference, spec_of
from nnc.lower.plan.stages import Step, View
from nnc.nn import conv as nn_conv
from tests.figures import HERE

pytestmark = pytest.mark.skipif(library() is None or compiler() is None, reason="oneDNN or LLVM is not installed")

RNG = np.random.default_rng(0)
COMMANDS = ("conv", "conv_input_grad", "conv_weight_grad")

# shapes of the input and the weight, stride, padding, dilation, groups
GEOMETRIES: dict[str, tuple[Any, ...]] = {
    "3x3": ((2, 16, 9, 8), (32, 16, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "odd sizes, asymmetric": ((2, 3, 9, 8), (5, 3, 3, 2), (2, 1), ((1, 0), (2, 1)), (1, 2), 1),
    "1x1": ((2, 32, 7, 7), (16, 32, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "1x1 of a large image": ((2, 8, 32, 33), (16, 8, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "1x1 strided": ((2, 32, 9, 9), (16, 32, 1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1), 1),
    "7x7 strided": ((1, 3, 20, 20), (16, 3, 7, 7), (2, 2), ((3, 3), (3, 3)), (1, 1), 1),
    "groups": ((2, 12, 7, 6), (8, 3, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 4),
    "depthwise": ((2, 16, 7, 7), (16, 1, 3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 16),
    "depthwise, two outputs each": ((2, 5, 7, 7), (10, 1, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 5),
    "dilated": ((1, 16, 12, 12), (16, 16, 3, 3), (1, 1), ((2, 2), (2, 2)), (2, 2), 1),
    "1 axis": ((3, 12, 11), (6, 4, 3), (2,), ((1, 1),), (1,), 3),
    "3 axes": ((2, 4, 5, 6, 7), (8, 4, 2, 3, 3), (1, 2, 1), ((1, 1), (0, 0), (2, 1)), (1, 1, 1), 1),
    "1x1 of many images": ((9, 8, 12, 12), (24, 8, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "rows of 4": ((2, 16, 4, 4), (16, 16, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "1 channel": ((2, 1, 8, 8), (1, 1, 3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    "rows shorter than the stride": ((2, 8, 4, 1), (8, 8, 3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), 1),
    "groups, dilated, long rows": ((1, 6, 9, 38), (4, 3, 3, 3), (1, 1), ((1, 1), (1, 1)), (2, 1), 2),
    "3 axes, long windows": ((1, 16, 3, 9, 9), (2, 16, 6, 7, 5), (1, 3, 3), ((2, 2), (3, 2), (1, 4)), (1, 1, 1), 1),
    "3 axes, long strides": ((1, 1, 20, 9, 20), (8, 1, 5, 7, 5), (4, 2, 3), ((2, 0), (0, 2), (3, 0)), (1, 1, 1), 1),
    "1 place": ((4, 8, 3, 3), (8, 8, 3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
}


def problem(
    geometry: str, name: str, dtype: Any = np.float32, *, last: bool = False
) -> tuple[list[Any], dict[str, Any]]:
    """Operands and parameters of a command."""
    x_shape, w_shape, stride, padding, dilation, groups = GEOMETRIES[geometry]
    out = window_shape("conv", x_shape[2:], w_shape[2:], stride, padding, dilation)
    x, w, ct = (RNG.normal(size=s).astype(dtype) for s in (x_shape, w_shape, (x_shape[0], w_shape[0], *out)))
    params: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if last:
        params["channels_last"] = True
        x, ct = (np.ascontiguousarray(np.moveaxis(a, 1, -1)) for a in (x, ct))
    if name == "conv":
        return [x, w], params
    if name == "conv_input_grad":
        return [ct, w], {"spatial": x_shape[2:], **params}
    return [x, ct], {"kernel": w_shape[2:], **params}


def run(name: str, operands: list[Any], params: dict[str, Any], out: Any = None) -> Any:
    """Returns the result that oneDNN's kernel writes over garbage, with garbage in its workspace."""
    specs = tuple(map(spec_of, operands))
    kernel = choose_kernel(command(name), specs, params)
    assert kernel.backend == "onednn"
    (spec,) = infer_specs(command(name), specs, params)
    out = np.full(spec.shape, 77, spec.dtype) if out is None else out
    nbytes = kernel.workspace(specs, params)
    workspace = [np.full(nbytes, 255, np.uint8)] if nbytes else []
    kernel.run(operands, [out, *workspace], params)
    return out


def check_close(found: Any, expected: Any) -> None:
    """Equal up to the rounding of sums."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    wide = expected.astype(np.float64)
    scale = np.abs(wide[np.isfinite(wide)]).max(initial=0)
    tolerance = 1e-5 if expected.dtype == np.float32 else 1e-2
    np.testing.assert_allclose(found.astype(np.float64), wide, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_library_agrees_with_the_reference(geometry: str, name: str, last: bool, dtype: Any) -> None:
    operands, params = problem(geometry, name, dtype, last=last)
    check_close(run(name, operands, params), reference[command(name)](*operands, **params))


def gaps(a: Any) -> Any:
    return np.repeat(a, 2, -1)[..., ::2]


def backwards(a: Any) -> Any:
    return np.ascontiguousarray(a[:, ::-1])[:, ::-1]


def turned(a: Any) -> Any:
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 1, -1)), -1, 1)


def misaligned(a: Any) -> Any:
    memory = np.empty(a.nbytes + 1, np.uint8)
    view = memory[1:].view(a.dtype).reshape(a.shape)
    view[...] = a
    return view


LAYOUTS = (gaps, backwards, turned, misaligned)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("geometry", ["3x3", "1x1 of a large image", "groups", "3 axes"])
def test_operands_and_results_may_lie_in_any_way(geometry: str, name: str, layout: Any) -> None:
    operands, params = problem(geometry, name)
    expected = reference[command(name)](*operands, **params)
    check_close(run(name, [layout(a) for a in operands], params, layout(np.full_like(expected, 77))), expected)


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("layout", [gaps, turned, misaligned])
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("geometry", ["3x3", "1x1", "1x1 of a large image", "depthwise", "rows of 4"])
def test_compiled_code_takes_all_views_but_backward_ones(geometry: str, name: str, layout: Any, last: bool) -> None:
    """With the workspace of dense operands, as it is planned before anybody knows how operands will lie."""
    operands, params = problem(geometry, name, last=last)
    expected = reference[command(name)](*operands, **params)
    specs = tuple(map(spec_of, operands))
    kernel = choose_kernel(command(name), specs, params)
    assert kernel.backend == "onednn"
    nbytes = kernel.workspace(specs, params)
    compiled = run_native(kernel.native, name)
    out = layout(np.full_like(expected, 77))
    compiled([layout(a) for a in operands], [out, *[np.empty(nbytes, np.uint8)] * (nbytes > 0)], params)
    check_close(out, expected)


@pytest.mark.parametrize("geometry", ["3x3", "1x1", "1x1 of a large image", "groups", "depthwise", "1 axis"])
def test_programs_convolve_turned_and_broadcast_views(geometry: str) -> None:
    (x, w), params = problem(geometry, "conv")

    def f(last: Any, w: Any) -> Any:
        y = conv(nnc.numpy.moveaxis(last, -1, 1), w, **params)
        ct = nnc.numpy.broadcast_to(np.float32(2), y.shape)
        grads = (
            conv_input_grad(ct, w, spatial=x.shape[2:], **params),
            conv_weight_grad(nnc.numpy.moveaxis(last, -1, 1), y, kernel=w.shape[2:], **params),
        )
        return (y, *grads, nnc.numpy.concatenate([y, y], 1))

    y = reference[conv](x, w, **params)
    expected = (
        y,
        reference[conv_input_grad](np.full_like(y, 2), w, spatial=x.shape[2:], **params),
        reference[conv_weight_grad](x, y, kernel=w.shape[2:], **params),
        np.concatenate([y, y], 1),
    )
    found = nnc.compile(f)(np.ascontiguousarray(np.moveaxis(x, 1, -1)), w)
    for one, other in zip(found, expected, strict=True):
        check_close(np.asarray(one), other)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("geometry", ["3x3", "1x1", "groups", "depthwise"])
def test_nan_and_infinity_spread_as_far_as_their_windows(geometry: str, name: str) -> None:
    operands, params = problem(geometry, name)
    operands[0].flat[3], operands[0].flat[-7] = np.nan, np.inf
    check_close(run(name, operands, params), reference[command(name)](*operands, **params))


def test_forms_that_the_library_lacks_are_left_to_the_reference() -> None:
    params = {"stride": (1,) * 4, "padding": ((0, 0),) * 4, "dilation": (1,) * 4, "groups": 1}
    four = tuple(TensorSpec((2,) * 6, "float32") for _ in range(2))
    plain = {"stride": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": 1}
    double = tuple(TensorSpec((2, 2, 2), "float64") for _ in range(2))
    empty = TensorSpec((0, 2, 2), "float32"), TensorSpec((2, 2, 2), "float32")
    for specs, given in ((four, params), (double, plain), (empty, plain)):
        assert choose_kernel(command("conv"), specs, given).backend == "numpy"


def test_programs_agree_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = RNG.normal(size=(2, 4, 6, 6)).astype(np.float32), RNG.normal(size=(4, 4, 3, 3)).astype(np.float32)

    def loss(w: Any) -> Any:
        return nnc.numpy.sum(nn_conv(nn_conv(x, w, padding=1) ** 2, w, padding=1))

    def compiled() -> Any:
        return np.asarray(nnc.compile(lambda w: nnc.grad(loss)(w))(w))

    with_library = compiled()
    monkeypatch.setattr(convolution, "library", lambda: None)
    assert choose_kernel(command("conv"), tuple(map(spec_of, (x, w))), problem("3x3", "conv")[1]).backend == "numpy"
    check_close(compiled(), with_library)


@pytest.mark.parametrize(
    ("implementation", "lanes"),
    [("brgconv_strided:avx512_core", 16), ("jit:avx2", 8), ("brgconv_strided:avx512_core_amx", 0), ("x64:gemm:jit", 0)],
)
def test_implementations_tell_how_many_channels_a_vector_holds(
    implementation: str, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    operands, params = problem("7x7 strided", "conv_input_grad")
    specs = tuple(map(spec_of, operands))
    kernel = choose_kernel(conv_input_grad, specs, params)
    monkeypatch.setattr(convolution, "find_primitive", lambda *_: SimpleNamespace(implementation=implementation))
    convolution._lanes_of.cache_clear()
    assert kernel.lanes(specs, params) == lanes
    convolution._lanes_of.cache_clear()


def test_the_workspace_is_part_of_the_plan() -> None:
    (x, w), params = problem("3x3", "conv")
    lowered = nnc.compile(lambda x, w: conv(x, w, **params) + 1).lower(x, w)
    kernel = choose_kernel(conv, tuple(map(spec_of, (x, w))), params)
    needed = kernel.workspace(tuple(map(spec_of, (x, w))), params)
    assert needed >= w.nbytes
    plan = lowered.compile().memory_plan
    assert plan.peak + plan.kept_bytes >= needed + 2 * 32 * math.prod(x.shape[2:]) * 4


def test_calls_of_as_many_tensors_share_one_text() -> None:
    names = set()
    for geometry in ("3x3", "1x1", "7x7 strided", "dilated"):
        operands, params = problem(geometry, "conv")
        specs = tuple(map(spec_of, operands))
        kernel, (spec,) = choose_kernel(conv, specs, params), infer_specs(conv, specs, params)
        views = [View.whole(i, spec) for i, spec in enumerate(specs)]
        nbytes = kernel.workspace(specs, params)
        results = [View.whole(2, spec), *[View.whole(3, TensorSpec((nbytes,), dtypes.uint8))] * (nbytes > 0)]
        native = kernel.native(Step(conv, tuple(views), tuple(results), params))
        assert native is not None
        names.add((native.name, len(results)))
    assert len(names) == len({results for _, results in names})


def test_threads_share_an_executable() -> None:
    (x, w), params = problem("3x3", "conv")
    compiled = nnc.compile(lambda x, w: conv_input_grad(conv(x, w, **params), w, spatial=x.shape[2:], **params))
    inputs = [x * (i + 1) for i in range(8)]
    expected = [np.asarray(compiled(each, w)) for each in inputs]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda each: np.asarray(compiled(each, w)), inputs * 5))
    for one, other in zip(found, expected * 5, strict=True):
        np.testing.assert_array_equal(one, other)


def test_every_thread_obeys_the_number_of_threads() -> None:
    """OpenMP keeps the number for each thread; a convolution called from another one takes nnc's all the same."""
    openmp = find_openmp().library
    if openmp is None:
        pytest.skip("no OpenMP here")
    x, w = np.ones((2, 8, 16, 16), np.float32), np.ones((8, 8, 3, 3), np.float32)
    f = nnc.compile(lambda x, w: nn_conv(x, w, padding=1))
    f(x, w)
    before = nnc.set_num_threads(1)
    try:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(openmp.omp_set_num_threads, 3).result()
            pool.submit(f, x, w).result()
            assert pool.submit(openmp.omp_get_max_threads).result() == 1
    finally:
        nnc.set_num_threads(before)


@pytest.mark.parametrize(
    ("implementation", "shape", "dilation", "is_sound"),
    [
        ("jit_bf16:avx512_core_bf16", (2, 8, 4, 1), 1, False),
        ("brgconv_bwd_w:avx512_core_amx", (2, 8, 4, 1), 1, False),
        ("jit_bf16:avx512_core_bf16", (2, 8, 4, 4), 2, False),
        ("brgconv_bwd_w:avx512_core_amx", (2, 8, 4, 4), 2, True),
        ("jit_bf16:avx512_core_bf16", (2, 8, 4, 4), 1, True),
        ("x64:gemm:jit", (2, 8, 4, 4), 1, False),
    ],
)
def test_implementations_that_read_unwritten_memory_are_told_by_name(
    implementation: str, shape: tuple[int, ...], dilation: int, is_sound: bool
) -> None:
    specs = TensorSpec(shape, dtypes.bfloat16), TensorSpec((2, 8, 2, -(-shape[-1] // 2)), dtypes.bfloat16)
    params = {"stride": (2, 2), "padding": ((dilation, dilation),) * 2, "dilation": (dilation,) * 2, "groups": 2}
    grouped = convolution_choice.problem_of("conv_weight_grad", HERE, specs, {**params, "kernel": (3, 3)})
    assert convolution_choice._is_sound(grouped, implementation) is is_sound


def test_equal_tensors_are_described_once() -> None:
    shape, strides = (2, 3), (12, 4)
    assert MemoryDesc.strided(shape, dtypes.float32, strides) is MemoryDesc.strided(shape, dtypes.float32, strides)
    assert MemoryDesc.any(shape, dtypes.float32) is not MemoryDesc.any(shape, dtypes.bfloat16)
