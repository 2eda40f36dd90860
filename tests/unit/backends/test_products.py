"""Products of matrices in compiled code agree with the reference, for all axes, strides and dtypes."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.cpu.kernels.products import tiling
from nnc.backends.cpu.kernels.products.dot import print_product
from nnc.backends.native_runs import run_native
from nnc.backends.onednn import library
from nnc.backends.onednn.matmul import kernel as matmul_kernel
from nnc.backends.onednn.matmul import matmul_native
from nnc.backends.products import gemm_of, product_of
from nnc.base import dtypes
from nnc.base.target import Target
from nnc.graph import TensorSpec, command, reference
from nnc.lower.plan.stages import Step, View
from tests.figures import HERE, with_figures

dot = command("dot")
pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no compiler")
with_onednn = pytest.mark.skipif(library.library() is None, reason="oneDNN is not installed")

LARGE = TensorSpec((512, 512), dtypes.bfloat16)
TAKES_BFLOAT16 = matmul_kernel(HERE).supports((LARGE, LARGE), {"contract": ((1,), (0,))})
TOLERANCE = {"float16": 2e-2, "bfloat16": 2e-1, "float32": 2e-4, "float64": 1e-11}
REFUSED = 7


def view(x: np.ndarray) -> View:
    return View(0, TensorSpec(x.shape, x.dtype), 0, x.strides)


def step_of(x: np.ndarray, y: np.ndarray, out: np.ndarray, params: dict[str, Any], *more: np.ndarray) -> Step:
    return Step(dot, tuple(map(view, (x, y, *more))), (view(out),), params)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    dtype = np.dtype(dtype)
    if dtypes.is_float(dtype):
        return rng.normal(size=shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def run(kernel: Any, params: dict[str, Any], *arrays: np.ndarray) -> None:
    """Runs a kernel, which must take the step, also where it is run on copies."""

    def native(step: Step) -> Any:
        made = kernel(step)
        assert made is not None
        return made

    run_native(native, "dot")(list(arrays[:-1]), [arrays[-1]], params)


def check(
    x: np.ndarray, y: np.ndarray, contract: Any = None, batch: Any = ((), ()), out: np.ndarray | None = None,
    machine: Target = HERE,
) -> None:  # fmt: skip
    params = {"contract": contract or ((x.ndim - 1,), (0,)), "batch": batch}
    wanted = reference[dot](x, y, **params)
    out = np.full(wanted.shape, REFUSED, wanted.dtype) if out is None else out
    run(partial(print_product, machine=machine), params, x, y, out)
    assert_close(out, wanted, max(1, math.prod(x.shape[a] for a in params["contract"][0])))


def assert_close(out: np.ndarray, wanted: np.ndarray, terms: int) -> None:
    if dtypes.is_float(wanted.dtype):
        tolerance = TOLERANCE[wanted.dtype.name] * math.sqrt(terms)
        np.testing.assert_allclose(out.astype(np.float64), wanted.astype(np.float64), tolerance, tolerance)
    else:
        np.testing.assert_array_equal(out, wanted)


def laid_out(x: np.ndarray, how: str) -> np.ndarray:
    """The same numbers at other strides."""
    if how == "transposed":
        return np.asfortranarray(x)
    if how == "every third":
        room = np.full((*x.shape[:-1], 3 * x.shape[-1]), REFUSED, x.dtype)
        room[..., ::3] = x
        return room[..., ::3]
    if how == "backwards":
        return x[::-1, ::-1].copy()[::-1, ::-1]
    if how == "rows apart":
        room = np.full((*x.shape[:-1], x.shape[-1] + 5), REFUSED, x.dtype)
        room[..., 2:-3] = x
        return room[..., 2:-3]
    if how == "misaligned":
        room = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
        room[...] = x
        return room
    return x


LAYOUTS = ("dense", "transposed", "every third", "backwards", "rows apart", "misaligned")
NAMES = (
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
)


@pytest.mark.parametrize("dtype", NAMES)
def test_products_of_odd_sizes_agree_with_the_reference_in_every_dtype(dtype: str) -> None:
    rng = np.random.default_rng(0)
    for m, k, n in ((1, 1, 1), (3, 5, 7), (1, 33, 18), (35, 9, 1), (17, 19, 49)):
        check(numbers(rng, (m, k), dtypes.as_dtype(dtype)), numbers(rng, (k, n), dtypes.as_dtype(dtype)))


@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
def test_operands_may_lie_at_any_strides(left: str, right: str) -> None:
    rng = np.random.default_rng(1)
    for dtype, (m, k, n) in (("float32", (13, 34, 21)), ("float64", (2, 40, 11)), ("float64", (21, 150, 7))):
        check(laid_out(numbers(rng, (m, k), dtype), left), laid_out(numbers(rng, (k, n), dtype), right))


@pytest.mark.parametrize("how", LAYOUTS)
def test_results_may_be_written_at_any_strides_and_leave_elements_between(how: str) -> None:
    rng = np.random.default_rng(2)
    x, y = numbers(rng, (23, 31), "float32"), numbers(rng, (31, 37), "float32")
    out = laid_out(np.full((23, 37), REFUSED, np.float32), how)
    check(x, y, out=out)
    room = out.base if how in ("every third", "rows apart") else None
    if room is not None:
        between = np.delete(room, np.arange(0, 111, 3) if how == "every third" else np.arange(2, 39), axis=1)
        assert (between == REFUSED).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
def test_long_sums_go_on_from_panel_to_panel(dtype: str) -> None:
    rng = np.random.default_rng(3)
    terms = 1000 if dtype == "float16" else 1100
    x, y = numbers(rng, (9, terms), dtype), numbers(rng, (terms, 30), dtype)
    check(x, y)
    check(x, np.asfortranarray(y))
    check(numbers(rng, (70, 700), dtype), numbers(rng, (700, 75), dtype))


def test_parts_that_threads_share_cover_the_result() -> None:
    rng = np.random.default_rng(4)
    for m, k, n in ((301, 130, 77), (5, 600, 900), (900, 600, 3)):
        check(numbers(rng, (m, k), "float32"), numbers(rng, (k, n), "float32"))


@pytest.mark.parametrize("right", ["dense", "transposed"])
@pytest.mark.parametrize(("m", "n"), [(130, 515), (130, 512), (1000, 70), (515, 99)])
def test_last_panels_and_last_parts_may_be_smaller_than_the_others(m: int, n: int, right: str) -> None:
    rng = np.random.default_rng(m * n)
    check(numbers(rng, (m, 200), "float32"), laid_out(numbers(rng, (200, n), "float32"), right))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32"])
def test_one_row_times_a_matrix_is_cut_into_parts_of_terms_and_of_columns(dtype: str) -> None:
    rng, dtype = np.random.default_rng(4), dtypes.as_dtype(dtype)
    for k, n in ((2048, 4096), (37, 5000), (1024, 1024), (1500, 100), (3001, 33)):
        y = numbers(rng, (k, n), dtype)
        check(numbers(rng, (1, k), dtype), y)
        check(np.asfortranarray(y.T), numbers(rng, (k, 1), dtype), out=np.full((n, 1), REFUSED, dtype))
    x, y = numbers(rng, (5, 1, 700), dtype), numbers(rng, (5, 700, 300), dtype)
    check(x, y, ((2,), (1,)), ((0,), (0,)))


def test_one_row_times_a_matrix_is_the_same_with_any_number_of_threads() -> None:
    rng = np.random.default_rng(5)
    x, y = nnc.asarray(numbers(rng, (1, 2000), "float32")), nnc.asarray(numbers(rng, (2000, 700), "float32"))
    product = nnc.compile(nnp.matmul)
    found = set()
    for threads in (1, 2, 3):
        before = nnc.set_num_threads(threads)
        found |= {np.asarray(product(x, y)).tobytes() for _ in range(5)}
        nnc.set_num_threads(before)
    assert len(found) == 1


def test_batches_that_are_broadcast_are_read_where_they_lie() -> None:
    rng = np.random.default_rng(5)
    x = np.broadcast_to(numbers(rng, (6, 7), "float32"), (4, 6, 7))
    y = numbers(rng, (4, 7, 9), "float32")
    check(x, y, ((2,), (1,)), ((0,), (0,)))
    check(np.broadcast_to(np.float32(2), (4, 6, 7)), y, ((2,), (1,)), ((0,), (0,)))


AXES = st.permutations(["b", "c", "i", "j", "p", "q"])


@settings(max_examples=60)
@given(AXES, AXES, st.data())
def test_axes_may_stand_anywhere(left: list[str], right: list[str], data: Any) -> None:
    sizes = {name: data.draw(st.integers(1, 5)) for name in "bcijpqkl"}
    right = [{"i": "k", "j": "l"}.get(name, name) for name in right]
    rng = np.random.default_rng(6)
    x, y = (numbers(rng, tuple(sizes[name] for name in names), "float64") for names in (left, right))
    contract, batch = (tuple(tuple(names.index(a) for a in pair) for names in (left, right)) for pair in ("pq", "bc"))
    check(x, y, contract, batch)


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0), (1, 0, 1), (40, 0, 1)])
def test_sums_without_terms_are_zero_and_empty_results_are_left_alone(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    check(np.ones((m, k), np.float32), np.ones((k, n), np.float32))


def test_nan_and_infinity_stay_in_their_row_and_column() -> None:
    rng = np.random.default_rng(7)
    for dtype in ("float32", "float64", "float16"):
        x, y = numbers(rng, (20, 33), dtype), numbers(rng, (33, 35), dtype)
        x[3, 4], x[5, 6], y[7, 8] = np.nan, np.inf, -np.inf
        check(x, y)
        check(x, np.asfortranarray(y))
        check(x, y[:, 8:9])


def test_float16_sums_are_rounded_once() -> None:
    x, y = np.full((1, 4096), 1, np.float16), np.full((4096, 1), 1, np.float16)
    out = np.empty((1, 1), np.float16)
    params = {"contract": ((1,), (0,)), "batch": ((), ())}
    run(partial(print_product, machine=HERE), params, x, y, out)
    assert out[0, 0] == 4096  # float16 itself cannot count past 2048


def test_sums_of_float16_that_no_panel_holds_are_left_to_the_reference() -> None:
    rng = np.random.default_rng(14)
    x, y = numbers(rng, (20, 1500), "float16"), np.asfortranarray(numbers(rng, (1500, 30), "float16"))
    params = {"contract": ((1,), (0,)), "batch": ((), ())}
    assert print_product(step_of(x, y, np.zeros((20, 30), np.float16), params), HERE) is None
    assert_close(np.asarray(nnc.compile(nnp.matmul)(x, y.copy("C"))), reference[dot](x, y, **params), 1500)


@pytest.mark.parametrize("vector_bytes", [16, 32])
def test_short_vectors_serve_machines_without_long_ones(vector_bytes: int) -> None:
    machine = replace(HERE, vector_bytes=vector_bytes)
    rng = np.random.default_rng(8)
    for m, k, n in ((1, 5, 40), (9, 70, 31), (64, 65, 2), (50, 300, 90)):
        x, y = numbers(rng, (m, k), "float32"), numbers(rng, (k, n), "float32")
        check(x, y, machine=machine)
        check(x, np.asfortranarray(y), machine=machine)
    own, together = (by_tiles(x, y, ((1,), (0,)), machine, shared=shared) for shared in (False, True))
    np.testing.assert_array_equal(together, own)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("left", ["dense", "transposed"])
@pytest.mark.parametrize("size", [(400, 300, 290), (200, 1100, 160), (15, 640, 200), (28, 1030, 64)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int16"])
def test_panels_are_packed_by_the_tiles_that_read_them_first(
    dtype: str, size: tuple[int, int, int], left: str, shared: bool
) -> None:
    m, k, n = size
    rng = np.random.default_rng(16)
    x, y = numbers(rng, (m, k), dtypes.as_dtype(dtype)), numbers(rng, (k, n), dtypes.as_dtype(dtype))
    x, params = laid_out(x, left), {"contract": ((1,), (0,)), "batch": ((), ())}
    wanted, groups = reference[dot](x, y, **params), set()
    for is_slow, near in ((False, 1 << 20), (True, 1 << 30), (True, 700 * k)):
        caches = with_figures("memory", first_cache_bytes=0, second_cache_bytes=2 * near)
        machine = with_figures("products", caches, slow_second_cache=is_slow, enough_rows=16)
        out = np.full(wanted.shape, REFUSED, wanted.dtype)
        product = product_of(step_of(x, y, out, params))
        wide = product.dtype if dtypes.is_integer(product.dtype) else dtypes.accumulator(product.dtype)
        shape = tiling.shape_of(product, wide, machine)
        assert shape is not None
        groups.add(shape.group)
        assert_close(by_tiles(x, y, params["contract"], machine, shared=shared), wanted, k)
    assert len(groups) > 1 or m < 400 or HERE.vector_bytes < 64


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("size", [(400, 300, 290), (200, 1100, 160), (15, 640, 200), (53, 70, 164), (97, 2100, 300)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int16"])
def test_rows_whose_terms_displace_each_other_are_copied_with_the_same_bits(
    dtype: str, size: tuple[int, int, int], shared: bool
) -> None:
    m, k, n = size
    if dtype == "bfloat16" and k > HERE.products.panel_terms:
        return  # no panel holds these sums
    rng = np.random.default_rng(17)
    x, y = numbers(rng, (m, k), dtypes.as_dtype(dtype)), numbers(rng, (k, n), dtypes.as_dtype(dtype))
    x, params = laid_out(x, "transposed"), {"contract": ((1,), (0,)), "batch": ((), ())}
    caches = with_figures("memory", second_cache_bytes=1 << 18)
    near = {"sum_bytes": 0, "unpacked_bytes": 0, "packed_rows": 1, "far_rows": 1, "least_rows": 8}
    machines = [with_figures("products", caches, **near, displacing_bytes=step) for step in (1, 1 << 40)]
    product = product_of(step_of(x, y, np.zeros((m, n), x.dtype), params))
    wide = product.dtype if dtypes.is_integer(product.dtype) else dtypes.accumulator(product.dtype)
    shapes = [tiling.shape_of(product, wide, machine) for machine in machines]
    assert [bool(shape and shape.copied) for shape in shapes] == [True, False]
    copied, read = (by_tiles(x, y, params["contract"], machine, shared=shared) for machine in machines)
    np.testing.assert_array_equal(copied.view(np.uint8), read.view(np.uint8))


@pytest.mark.parametrize("is_slow", [False, True])
def test_columns_of_a_prime_number_of_vectors_are_not_taken_one_by_one(is_slow: bool) -> None:
    machine = with_figures("products", slow_second_cache=is_slow)
    lanes = HERE.vector_bytes // 4
    x, y = np.ones((64, 256), np.float32), np.ones((256, 97 * lanes), np.float32)
    params = {"contract": ((1,), (0,)), "batch": ((), ())}
    shape = tiling.shape_of(product_of(step_of(x, y, x @ y, params)), dtypes.float32, machine)
    assert shape is not None and shape.tile.vectors > 1


def by_tiles(x: np.ndarray, y: np.ndarray, contract: Any, machine: Target = HERE, *, shared: bool) -> np.ndarray:
    """Computes a product with the tiles that products share, or with tiles in its own text."""
    machine = with_figures("products", machine, shared_volume=0 if shared else math.inf, shared_tile=0)
    params = {"contract": contract, "batch": ((), ())}
    out = np.full(reference[dot](x, y, **params).shape, REFUSED, x.dtype)
    native = print_product(step_of(x, y, out, params), machine)
    assert native is not None and bool(native.calls) is native.light is shared
    run(lambda step: native, params, x, y, out)
    return out


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int16"])
@pytest.mark.parametrize("size", [(70, 100, 90), (33, 1500, 64), (50, 7, 130), (130, 2048, 17)])
def test_shared_tiles_compute_the_bits_that_a_products_own_do(dtype: str, size: tuple[int, int, int]) -> None:
    m, k, n = size
    rng = np.random.default_rng(15)
    x, y = numbers(rng, (m, k), dtypes.as_dtype(dtype)), numbers(rng, (k, n), dtypes.as_dtype(dtype))
    for left, right in (("dense", "dense"), ("transposed", "transposed"), ("every third", "every third")):
        if right != "dense" and dtype == "bfloat16" and k > HERE.products.panel_terms:
            continue  # those are left to the reference
        operands = laid_out(x, left), laid_out(y, right)
        own, together = (by_tiles(*operands, ((1,), (0,)), shared=shared) for shared in (False, True))
        np.testing.assert_array_equal(together.view(np.uint8), own.view(np.uint8))
        assert_close(together, reference[dot](*operands, contract=((1,), (0,)), batch=((), ())), k)


def test_shared_tiles_add_terms_along_several_axes() -> None:
    rng = np.random.default_rng(16)
    x, y = numbers(rng, (40, 5, 24), "float32"), numbers(rng, (24, 5, 70), "float32")
    own, together = (by_tiles(x, y, ((1, 2), (1, 0)), shared=shared) for shared in (False, True))
    np.testing.assert_array_equal(together, own)


def test_large_products_of_other_sizes_call_the_same_kernels() -> None:
    machine = with_figures("products", shared_tile=1 << 10)  # tiles of short vectors are small

    def called(m: int, k: int, n: int) -> list[str]:
        x, y = np.ones((m, k), np.float32), np.ones((n, k), np.float32).T
        params = {"contract": ((1,), (0,)), "batch": ((), ())}
        native = print_product(step_of(x, y, np.ones((m, n), np.float32), params), machine)
        assert native is not None
        return [each.name for each in native.calls]

    assert called(1024, 256, 256) == called(768, 512, 256) != []
    assert called(64, 64, 64) == []


def test_short_products_are_taken_into_loops_and_long_ones_are_not() -> None:
    params = {"contract": ((1,), (0,)), "batch": ((), ())}
    for n, inline in ((4, True), (32, False)):
        x = np.ones((n, n), np.float32)
        native = print_product(step_of(x, x, x.copy(), params), HERE)
        assert native is not None and native.inline is inline


def test_axes_that_lie_evenly_are_one() -> None:
    x, y = np.ones((2, 3, 4, 5)), np.ones((4, 5, 6))
    product = product_of(step_of(x, y, np.ones((2, 3, 6)), {"contract": ((2, 3), (0, 1)), "batch": ((), ())}))
    assert (product.loops, product.rows.size, product.columns.size, product.k) == ((), 6, 6, 20)
    assert len(product.depth) == 1


def test_matrices_without_a_unit_stride_are_not_for_libraries() -> None:
    x, y, out = np.ones((6, 8))[::2, ::2], np.ones((4, 5)), np.ones((3, 5))
    params = {"contract": ((1,), (0,)), "batch": ((), ())}
    assert gemm_of(product_of(step_of(x, y, out, params))) is None
    gemm_found = gemm_of(product_of(step_of(np.ones((4, 3)).T, y, out, params)))
    assert gemm_found is not None and gemm_found.a.transposed and gemm_found.a.leading == 3


@pytest.mark.parametrize("size", [3, 50])
def test_products_at_once_are_those_of_programs(size: int) -> None:
    rng = np.random.default_rng(13)
    for dtype in ("float32", "float64", "int32"):
        x, y = numbers(rng, (size, size), dtype), numbers(rng, (size, size), dtype)
        at_once, compiled = nnp.matmul(x, y), nnc.compile(nnp.matmul)(x, y)
        assert_close(np.asarray(at_once), np.asarray(compiled), size)
        assert_close(np.asarray(at_once), x @ y, size)


# -- oneDNN ------------------------------------------------------------------------------------------------------------


@with_onednn
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("how", ["dense", "transposed", "rows apart"])
def test_onednn_multiplies_transposed_and_sliced_matrices(dtype: str, how: str) -> None:
    if dtype == "bfloat16" and not TAKES_BFLOAT16:
        pytest.skip("oneDNN has no products in bfloat16 for this processor")
    rng = np.random.default_rng(9)
    x, y = (numbers(rng, shape, dtypes.as_dtype(dtype)) for shape in ((37, 40), (40, 29)))
    params = {"contract": ((1,), (0,)), "batch": ((), ())}
    wanted = reference[dot](x, y, **params)
    for left, right in ((laid_out(x, how), y), (x, laid_out(y, how))):
        out = np.zeros_like(wanted)
        run(matmul_native, params, left, right, out)
        assert_close(out, wanted, 40)


@with_onednn
def test_onednn_multiplies_batches_one_of_them_broadcast() -> None:
    rng = np.random.default_rng(10)
    x = np.broadcast_to(numbers(rng, (6, 1, 5, 8), "float32"), (6, 2, 5, 8))
    y = numbers(rng, (2, 6, 8, 7), "float32").swapaxes(0, 1)
    params = {"contract": ((3,), (2,)), "batch": ((0, 1), (0, 1))}
    out = np.zeros((6, 2, 5, 7), np.float32)
    run(matmul_native, params, x, y, out)
    assert_close(out, x @ y, 8)


def test_onednn_refuses_unknown_operands() -> None:
    params = {"contract": ((1,), (0,)), "batch": ((), ())}
    x = np.ones((8, 8))
    assert matmul_native(step_of(x, x, x.copy(), params)) is None  # float64
    x = np.ones((16, 16), np.float32)[::2, ::2]
    assert matmul_native(step_of(x, x, np.ones((8, 8), np.float32), params)) is None


def test_without_the_library_there_is_no_kernel_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "library", lambda: None)
    x = np.ones((64, 64), dtypes.bfloat16)
    step = step_of(x, x, x.copy(), {"contract": ((1,), (0,)), "batch": ((), ())})
    assert matmul_native(step) is None
    check(x, x)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bfloat16"])
@pytest.mark.parametrize("shape", [(400, 600), (9, 33), (8, 16), (7, 100)])
def test_a_vector_whose_elements_are_no_neighbours_meets_a_matrix(shape: tuple[int, int], dtype: str) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.integers(-3, 4, shape).astype(dtypes.as_dtype(dtype))
    columns = rng.integers(-3, 4, (shape[1], 5)).astype(dtypes.as_dtype(dtype))
    for operands, contract in (
        ((matrix, columns[:, 2]), ((1,), (0,))),
        ((columns[:, 1:2].T, matrix), ((1,), (1,))),
    ):
        params = {"contract": contract, "batch": ((), ())}
        wanted = np.tensordot(*(np.asarray(x, "float64") for x in operands), contract)
        out = np.empty(wanted.shape, matrix.dtype)
        run_native(lambda step: print_product(step, HERE), "dot")(operands, (out,), params)
        np.testing.assert_array_equal(out, wanted.astype(matrix.dtype))
