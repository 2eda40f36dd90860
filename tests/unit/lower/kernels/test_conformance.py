"""Printed loop nests agree with the references: every command that they run, in every dtype, on operands of any layout.

The cases are generated: commands with a scalar expression (`test_scalars` has their dtypes, parameters and tolerances),
reductions, and commands that are taken apart into both. A nest is printed for the very strides of its operands and called at their
addresses; whole programs, in which views, memory and kernels are chosen by lowering, stand at the end.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc
import nnc.nn as nn
import nnc.numpy as nnp
from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.loaded import choose_kernel
from nnc.base import dtypes
from nnc.base.options import Options
from nnc.commands.rules import reduction
from nnc.compiled.pipeline import lower
from nnc.errors import NncError
from nnc.graph import Command, Graph, GraphBuilder, Symbol, TensorSpec, infer_specs, reference, spec_of
from nnc.graph import command as command_of
from nnc.lower.kernels.llvm import print_graph
from nnc.lower.kernels.native import Native
from nnc.lower.kernels.reductions import shortcut
from nnc.lower.plan.stages import View
from tests.figures import HERE
from tests.unit.backends.cpu.against_reference import LAYOUTS, REAL
from tests.unit.lower.kernels.test_scalars import TARGETS, Case, cases, samples

NDArray = np.ndarray[Any, Any]
SHAPES = ((), (1,), (2,), (3,), (15,), (16,), (17,), (33,), (1025,), (3, 17), (17, 2), (2, 3, 5), (5, 1, 16))
ROWS = ((1,), (2,), (15,), (17,), (1025,), (3, 17), (17, 3), (33, 16), (2, 3, 15), (16, 1, 33))
FLOATS = [name for name in REAL if dtypes.is_float(dtypes.BY_NAME[name])]
_EVERY = 13  # of so many triples of layouts one is tried in each dtype
PARALLEL = ((300_007,), (3, 100_003), (100_003, 3), (40, 5000))


def stretched(x: NDArray) -> NDArray:
    """An array of that shape, each row of which is the first element of a row (stride 0)."""
    return np.broadcast_to(x[..., :1], x.shape) if x.ndim else x


SOURCES = (*LAYOUTS, stretched)


@dataclass(frozen=True)
class Call:
    """A fused graph on arrays."""

    graph: Graph
    inputs: Sequence[NDArray]
    outputs: Sequence[NDArray]

    def native(self) -> Native:
        inputs, outputs = (
            tuple(View(0, spec_of(x), 0, x.strides) for x in group) for group in (self.inputs, self.outputs)
        )
        return print_graph(self.graph, inputs, outputs, HERE)


def run(calls: Sequence[Call]) -> None:
    """Runs kernels, which are compiled together."""
    jit = compiler()
    if jit is None:
        pytest.skip("there is no compiler")
    natives = [call.native() for call in calls]
    for call, native, function in zip(calls, natives, jit.load(natives), strict=True):
        operands = [x.ctypes.data for x in (*call.inputs, *call.outputs)]
        kinds = [ctypes.c_void_p] * len(operands) + [ctypes.c_int64] * len(native.numbers)
        assert ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(function.address)(*operands, *native.numbers) == 0


def graph_of(inputs: Sequence[NDArray], body: Callable[..., Symbol | Sequence[Symbol]]) -> Graph:
    builder = GraphBuilder("conformance")
    out = body(builder, *(builder.input(x.shape, x.dtype) for x in inputs))
    return builder.build(*(out if isinstance(out, Sequence) else [out]))


def apply(case: Case, b: GraphBuilder, *operands: Symbol) -> Symbol:
    return b.add(case.target, *operands, **case.params)


def operands_of(case: Case, shape: tuple[int, ...]) -> list[NDArray]:
    drawn = [np.resize(samples(dtype, seed), shape) for seed, dtype in enumerate(case.inputs)]
    for x in drawn:
        if dtypes.is_float(x.dtype) and x.size:
            x.reshape(-1)[0] = 3 * ml_dtypes.finfo(x.dtype).smallest_subnormal
    return drawn


def shaped(case: Case, shape: tuple[int, ...]) -> Case:
    """The case for operands of a shape."""
    return replace(case, params={**case.params, "shape": shape}) if "shape" in case.params else case


def check(case: Case, operands: Sequence[NDArray], out: NDArray) -> None:
    """Checks that the result is one that `Case` allows."""
    shaped(case, (out.size,)).check([x.reshape(-1) for x in operands], out.reshape(-1))


# -- elementwise commands ------------------------------------------------------------------------------------------------


def test_the_table_holds_the_commands_that_matter() -> None:
    names = {target.name for target in TARGETS}
    assert len(names) > 70
    assert names >= {"add", "div", "pow", "exp", "tanh", "select", "convert", "shift_left", "remainder", "nextafter"}


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_an_elementwise_command_wherever_its_operands_lie(target: Command) -> None:
    calls, checks = [], []
    start = TARGETS.index(target)  # shapes and layouts take turns, so that all meet within each dtype
    for turn, found in enumerate(cases(target), start):
        shape = SHAPES[turn % len(SHAPES)]
        case = shaped(found, shape)
        operands = [SOURCES[(turn + i) % len(SOURCES)](x) for i, x in enumerate(operands_of(case, shape))]
        given = [x.copy() for x in operands]
        like = [x for x in operands if x.dtype == case.output and (0 not in x.strides or x.size == 1)]
        other = LAYOUTS[turn // 2 % len(LAYOUTS)](np.full(shape, 1, case.output))
        out = like[-1] if like and turn % 3 == 0 else other  # some in place
        graph = graph_of(operands, partial(apply, case))
        calls.append(Call(graph, operands, [out]))
        checks.append((case, given, out))
    run(calls)
    for case, given, out in checks:
        check(case, given, out)


@pytest.mark.parametrize("name", REAL)
def test_operands_of_all_layouts_meet(name: str) -> None:
    dtype = dtypes.BY_NAME[name]
    target = command_of("bitwise_or" if dtypes.is_bool(dtype) else "maximum")
    calls, checks = [], []
    places = list(itertools.product(SOURCES, SOURCES, LAYOUTS))[REAL.index(name) % _EVERY :: _EVERY]
    for turn, (first, second, third) in enumerate(places):
        shape = ((3, 17), (33,), (2, 3, 5))[turn % 3]
        case = Case(target, (dtype, dtype), dtype, {})
        x, y = operands_of(case, shape)
        operands, out = [first(x), second(y)], third(np.zeros(shape, dtype))
        calls.append(Call(graph_of(operands, partial(apply, case)), operands, [out]))
        checks.append((case, operands, out))
    run(calls)
    for case, operands, out in checks:
        check(case, operands, out)


# -- reductions ----------------------------------------------------------------------------------------------------------


def terms(name: str, shape: tuple[int, ...], seed: int = 0) -> NDArray:
    """Returns operands whose sums and products stay finite; the last of several rows hold NaN, an infinity, and nothing but -0."""
    dtype, rng = dtypes.BY_NAME[name], np.random.default_rng(seed)
    if not dtypes.is_float(dtype):
        low, high = (0, 2) if dtypes.is_bool(dtype) else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return rng.integers(low, high, shape, np.uint64 if name == "uint64" else np.int64).astype(dtype)
    x = rng.uniform(*((0.9, 1.1) if math.prod(shape) < 10_000 else (0.999, 1.001)), shape) * rng.choice([-1, 1], shape)
    x = x.astype(dtype)
    for i, special in enumerate((np.nan, np.inf, -np.inf)[: len(x) - 1] if x.ndim > 1 else ()):
        x[-1 - i].reshape(-1)[-1] = special
    if x.ndim > 1 and len(x) > 3:
        x[-4] = -0.0
    return x


def allowed(name: str, x: NDArray, axes: tuple[int, ...], wanted: NDArray) -> NDArray | float:
    """The largest allowed difference from the reference: 0, but for the order in which floats are summed."""
    if not dtypes.is_float(x.dtype) or name in ("reduce_max", "reduce_min"):
        return 0.0
    wide = np.nan_to_num(np.abs(x.astype(np.float64)), posinf=0)
    size = wide.sum(axes) if name == "reduce_sum" else np.nan_to_num(np.abs(wanted.astype(np.float64)), posinf=0)
    several = np.finfo(dtypes.accumulator(x.dtype)).eps * x.size**0.5 * size
    once = float(ml_dtypes.finfo(x.dtype).eps) * np.nan_to_num(np.abs(wanted.astype(np.float64)), posinf=0)
    return 2 * several + once


def reductions_of(x: NDArray) -> list[str]:
    """The reductions that take a dtype."""
    return [target.name for target in reduction if takes(target, [spec_of(x)], {"axes": (0,)})]


def takes(target: Command, specs: Sequence[TensorSpec], params: dict[str, Any]) -> bool:
    try:
        infer_specs(target, specs, params)
    except NncError:
        return False
    return True


def axes_of(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    every = range(len(shape))
    return [axes for k in range(1, len(shape) + 1) for axes in itertools.combinations(every, k)]


def reduce_by(commands: Sequence[str], axes: tuple[int, ...], b: GraphBuilder, x: Symbol) -> list[Symbol]:
    """All reductions in one nest."""
    return [b.add(name, x, axes=axes) for name in commands]


def check_reductions(name: str, shapes: Sequence[tuple[int, ...]]) -> None:
    calls, checks = [], []
    for turn, (shape, reduced) in enumerate((s, axes) for s in shapes for axes in axes_of(s)):
        x = SOURCES[turn % len(SOURCES)](terms(name, shape, turn))
        commands = reductions_of(x)
        graph = graph_of([x], partial(reduce_by, commands, reduced))
        layout = LAYOUTS[turn // 2 % len(LAYOUTS)]
        outputs = [layout(np.full(s.shape, 1, s.dtype)) for s in graph.output_specs]
        calls.append(Call(graph, [x], outputs))
        checks.append((commands, x, reduced, outputs))
    run(calls)
    for commands, x, reduced, outputs in checks:
        for command, out in zip(commands, outputs, strict=True):
            with np.errstate(all="ignore"):
                wanted = np.asarray(reference[command_of(command)](x, axes=reduced))
            assert (out.dtype, out.shape) == (wanted.dtype, wanted.shape)
            close(
                out,
                wanted,
                allowed(command, x, reduced, wanted),
                f"{command} of {x.dtype}{list(x.shape)} over {reduced}",
            )


def close(out: NDArray, wanted: NDArray, bound: Any, what: str) -> None:
    if dtypes.is_float(out.dtype):
        out, wanted = out.astype(np.float64), wanted.astype(np.float64)
        with np.errstate(invalid="ignore"):
            good = (out == wanted) | (np.isnan(out) & np.isnan(wanted)) | (np.abs(out - wanted) <= bound)
        assert good.all(), f"{what}: {out[~good][:3]}, the reference {wanted[~good][:3]}"
    else:
        np.testing.assert_array_equal(out, wanted, err_msg=what)


@pytest.mark.parametrize("name", REAL)
def test_reductions_over_all_choices_of_axes(name: str) -> None:
    check_reductions(name, ROWS)


@pytest.mark.parametrize("name", ["float32", "float64", "int64", "bool", "float16"])
def test_reductions_that_threads_share(name: str) -> None:
    check_reductions(name, PARALLEL)


@pytest.mark.usefixtures("own_registries")
@pytest.mark.parametrize("name", REAL)
def test_reductions_by_scalar_expressions_give_the_same_as_by_shortcuts(name: str) -> None:
    dict.clear(shortcut)
    check_reductions(name, ROWS[::3])


# -- normalisations ------------------------------------------------------------------------------------------------------


def logits(name: str, shape: tuple[int, ...]) -> NDArray:
    """Numbers, some of them -inf; where there are several rows, one with NaN, one with inf and one of -inf alone."""
    rng = np.random.default_rng(len(shape))
    x = (rng.normal(size=shape) * 5).astype(dtypes.BY_NAME[name])
    x[..., 1::7] = -np.inf
    for i, special in enumerate((np.nan, np.inf, -np.inf)[: len(x) - 1] if x.ndim > 1 else ()):
        x[i].reshape(-1)[: 2 if i < 2 else None] = special
    return x


def normalised(*given: Any) -> list[Any]:
    """All normalisations of arrays, over rows, columns and the whole, and from rows turned around."""
    results = []
    for x in given:
        views = [x, x[..., ::-1], x.T] if x.ndim > 1 else [x, x[::2]]
        for i, view in enumerate(views):
            axes = [(0,), (x.ndim - 1,), tuple(range(x.ndim))]
            for axis in dict.fromkeys(axes[i:] if i < 2 else axes[:1]):
                results += [command_of(c)(view, axes=axis) for c in ("softmax", "log_softmax", "logsumexp")]
        index = nnp.arange(2 * math.prod(x.shape[:-1])).reshape((*x.shape[:-1], 2)) % x.shape[-1]
        results.append(command_of("pick_log_softmax")(x, index, mode="clip"))
        if x.ndim > 1:
            results.append(nn.layer_norm(nnp.nan_to_num(x, posinf=1, neginf=0)))
    return results


@pytest.mark.parametrize("name", FLOATS)
def test_normalisations_of_rows_and_columns_on_views(name: str) -> None:
    given = [logits(name, shape) for shape in ((33,), (5, 17), (4, 3, 15), (4, 1025))]
    graph = nnc.make_graph(normalised)(*given)
    results = lower(graph, Options(), choose_kernel, compiler()).run(given)
    expected = lower(graph, Options(native=False), choose_kernel).run(given)
    assert len(results) == len(expected) > 60
    dtype = dtypes.BY_NAME[name]
    sums, once = (float(ml_dtypes.finfo(d).eps) for d in (dtypes.accumulator(dtype), dtype))
    for i, (out, wanted) in enumerate(zip(results, expected, strict=True)):
        assert (out.dtype, out.shape) == (wanted.dtype, wanted.shape)
        size = np.nan_to_num(np.abs(wanted.astype(np.float64)), posinf=0)
        close(out, wanted, 100 * sums * (1 + size) + 2 * once * size, f"result {i}")


# -- programs ------------------------------------------------------------------------------------------------------------


def views(x: Any) -> list[Any]:
    """Views of shape (6, 17) of an array of shape (34, 12): columns, with gaps, backwards, stretched."""
    return [x[:17, :6].T, x[::2, 1::2].T, x[16::-1, 11:5:-1].T, nnp.broadcast_to(x[3, :6, None], (6, 17))]


def rows(x: Any) -> list[Any]:
    """Parts of a vector that begin at different addresses."""
    return [x[i : i + 1025] for i in range(4)]


def empty(x: Any) -> list[Any]:
    """Views without elements."""
    return [x[:0].T, x[3:3].T]


def commands_of(name: str) -> list[Case]:
    """The commands that compute with a dtype."""
    dtype, known = dtypes.BY_NAME[name], itertools.chain.from_iterable(map(cases, TARGETS))
    return [case for case in known if case.inputs and case.inputs[-1] == dtype]


@pytest.mark.parametrize("split", [views, rows, empty])
@pytest.mark.parametrize("name", REAL)
def test_a_program_of_all_commands_on_views(name: str, split: Callable[[Any], list[Any]]) -> None:
    chosen = commands_of(name)

    def operands(parts: list[Any], conditions: list[Any]) -> list[list[Any]]:
        """Returns the operands of each command: views, in turns."""
        taken = [[parts[(turn + i) % len(parts)] for i in range(len(case.inputs))] for turn, case in enumerate(chosen)]
        for case, given in zip(chosen, taken, strict=True):
            if case.target.name == "select":
                given[0] = conditions[0]
        return taken

    def program(x: Any, flags: Any) -> list[Any]:
        taken = operands(split(x), split(flags))
        return [case.target(*given, **case.params) for case, given in zip(chosen, taken, strict=True)]

    shape = (1030,) if split is rows else (34, 12)
    x = np.resize(samples(dtypes.BY_NAME[name], 0), shape)
    flags = np.resize(samples(dtypes.bool_, 1), shape)
    options = Options(flush_denormals=False)  # as the references do
    compiled = lower(nnc.make_graph(program)(x, flags), options, choose_kernel, compiler())
    wanted = operands(*([np.asarray(part) for part in split(array)] for array in (x, flags)))
    for layout in LAYOUTS if split is views else LAYOUTS[:1]:
        results = compiled.run([layout(x), flags])
        assert len(results) == len(chosen)
        for case, given, out in zip(chosen, wanted, results, strict=True):
            assert (out.shape, out.dtype) == (given[0].shape, case.output)
            if out.size:
                check(case, given, out)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: -x,
        lambda x: x + x[::-1],
        lambda x: x * 2 + x.T,
        lambda x: x - nnp.mean(x, 0),
        lambda x: x - nnp.mean(x, 1, keepdims=True),
        lambda x: nn.softmax(x, 1) + nn.softmax(x, 0),
        lambda x: (nnp.exp(x), x - nnp.sum(x), x[::-1]),
        lambda x: (nnp.exp(x), x >= nnp.max(x, 1, keepdims=True)),
        lambda x: x.at[3].add(x[4]) * x,
    ],
)
@pytest.mark.parametrize("size", [17, 64])
def test_donated_memory_is_written_over_only_behind_its_last_reader(function: Any, size: int) -> None:
    x = np.random.default_rng(0).normal(size=(size, size)).astype(np.float32)
    graph = nnc.make_graph(function)(x)
    expected = lower(graph, Options(native=False), choose_kernel).run([x.copy()])
    found = lower(graph, Options(donated=(0,), verify_passes=True), choose_kernel, compiler()).run([x.copy()])
    for out, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(out, wanted, rtol=2e-6, atol=1e-5)
