"""The contract suite: every registered command keeps the promises its attributes make, on the rows of the samples tables.

Shape rule = reference in every float dtype; jvp = central differences; transposes by the dot-product test; vmap = a loop;
second order; text and JSON forms round-trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy)
import numpy as np
import pytest

import nnc
from nnc.array.array import Array
from nnc.base import dtypes
from nnc.commands.rules import in_place_of
from nnc.graph import (
    COMMANDS,
    GraphBuilder,
    TensorSpec,
    command,
    from_json,
    infer_specs,
    reference,
    structurally_equal,
    to_json,
)
from nnc.graph.registry import batch, derivative
from nnc.testing import inner_product
from nnc.trace.core.batching import run_batched
from tests.contract.commands.sample import FLOATS, Sample, all_samples

# Commands that are called with sub-graphs or live in linear graphs only; tests/unit/trace covers them.
WITHOUT_ROWS = {"call", "checkpoint", "custom_jvp", "custom_vjp", "isolated", "linear_solve", "pull_only"}
WITHOUT_ROWS |= {"while", "scan", "case_of", "pull_iterations", "add_tapes", "merge_tapes", "spread_tape", "sum_tape"}
WITHOUT_ROWS |= {"fused", "with_epilogue", "unit"}  # made by lowering; tests/unit/lower/kernels shows them
WITHOUT_ROWS |= {"pack"}  # likewise; test_pack shows it
WITHOUT_ROWS |= {"pure_callback"}  # runs a function of the user; tests/unit/trace/core/test_host.py shows it
WITHOUT_ROWS |= {"callback", "check_finite"}  # they have effects instead of results; tests/unit/debug shows them
WITHOUT_ROWS |= {
    "psum",
    "pvary",
    "pmax",
    "pmin",
    "all_gather",
    "all_gather_same",
    "psum_scatter",
    "all_to_all",
    "ppermute",
    "process_index",
}  # rules join rows; test_collective
# Commands that have no derivative on purpose: integers or booleans come out, the derivative is not wanted, or lowering makes them.
NOT_DIFFERENTIABLE = {"nextafter", "max_pool_both"}
NOT_DIFFERENTIABLE |= {"schur", "triangular_root"}  # factors are not unique; functions made of them are differentiated
NOT_DIFFERENTIABLE |= {"poisson_log_mass", "binomial_log_mass"}  # they decide which integers are drawn


SAMPLES = all_samples()


def is_float(x: Any) -> bool:
    return np.asarray(x).dtype.kind == "f"


def is_inexact(x: Any) -> bool:
    return np.asarray(x).dtype.kind in "fc"


def run(row: Sample, operands: Any) -> tuple[Any, ...]:
    result = command(row.command)(*operands, **row.params)
    return result if isinstance(result, tuple) else (result,)


def moving(row: Sample) -> list[int]:
    """The operands whose derivatives are checked."""
    if command(row.command) not in derivative:
        return []
    if row.differentiable is not None:
        return list(row.differentiable)
    return [i for i, x in enumerate(row.operands) if is_inexact(x)]


def differentiable(row: Sample) -> Any:
    """The command as a function of the operands in `moving`, with its inexact outputs as result."""
    where = moving(row)

    def function(*values: Any) -> Any:
        operands = list(row.operands)
        for i, value in zip(where, values, strict=True):
            operands[i] = value
        return tuple(y for y in run(row, operands) if dtypes.is_inexact(y.spec.dtype))

    return function, tuple(np.asarray(row.operands[i]) for i in where)


def over(samples: Sequence[Sample]) -> pytest.MarkDecorator:
    """Runs a test for each of the rows."""
    return pytest.mark.parametrize("row", samples, ids=[f"{i}-{row}"[:70] for i, row in enumerate(samples)])


rows = over(SAMPLES)
differentiable_rows = over([row for row in SAMPLES if moving(row)])


def test_every_command_has_a_row_and_every_row_a_command() -> None:
    built_in = {name for name in COMMANDS if not name.startswith(("test_", "double_doctest"))}
    covered = {row.command for row in SAMPLES}
    assert covered <= built_in
    missing = built_in - covered - WITHOUT_ROWS
    assert not missing, f"give {sorted(missing)} rows in tests/contract/commands/samples_<family>.py"
    assert not WITHOUT_ROWS & covered


def test_every_command_that_yields_floats_of_floats_has_a_derivative() -> None:
    missing = set()
    for row in SAMPLES:
        if any(is_inexact(x) for x in row.operands) and command(row.command) not in derivative:
            specs = tuple(TensorSpec(np.shape(x), np.asarray(x).dtype) for x in row.operands)
            if any(dtypes.is_inexact(spec.dtype) for spec in infer_specs(command(row.command), specs, row.params)):
                missing.add(row.command)
    assert missing == NOT_DIFFERENTIABLE


def test_every_command_has_a_batching_rule() -> None:
    assert {row.command for row in SAMPLES if command(row.command) not in batch} == set()


@pytest.mark.parametrize(
    ("row", "dtype"),
    [
        (row, d)
        for row in SAMPLES
        for d in FLOATS
        if d in row.dtypes and (d == "float64" or any(map(is_float, row.operands)))
    ],
    ids=str,
)
def test_infer_agrees_with_the_reference_in_every_float_dtype(row: Sample, dtype: str) -> None:
    operands = [np.asarray(x).astype(dtypes.as_dtype(dtype)) if is_float(x) else np.asarray(x) for x in row.operands]
    specs = tuple(TensorSpec(x.shape, x.dtype) for x in operands)
    inferred = infer_specs(command(row.command), specs, row.params)
    results = reference[command(row.command)](*operands, **row.params)
    results = results if isinstance(results, (tuple, list)) else (results,)
    assert [(np.shape(x), np.asarray(x).dtype) for x in results] == [(spec.shape, spec.dtype) for spec in inferred]
    if dtype in ("float16", "bfloat16"):
        _check_low_precision(row, operands, results, dtype)


def _check_low_precision(row: Sample, operands: Any, results: Any, dtype: str) -> None:
    """Checks that a 16-bit result equals float64's on the rounded operands, to the dtype's own precision."""
    wide_operands = [
        x.astype(np.float64) if dtypes.is_inexact(x.dtype) and x.dtype.kind != "c" else x for x in operands
    ]
    wide = reference[command(row.command)](*wide_operands, **row.params)
    wide = wide if isinstance(wide, (tuple, list)) else (wide,)
    bound = (2e-3 if dtype == "float16" else 1.6e-2) * row.tolerance
    for narrow, exact in zip(results, wide, strict=True):
        if np.asarray(exact).dtype == np.float64 and np.asarray(narrow).dtype != np.float64:
            np.testing.assert_allclose(np.asarray(narrow).astype(np.float64), exact, rtol=bound, atol=bound)


@differentiable_rows
def test_derivatives_agree_with_central_differences_to_second_order(row: Sample) -> None:
    function, args = differentiable(row)
    bound = 1e-6 * row.tolerance
    nnc.testing.check_grads(function, args, order=2, atol=bound, rtol=bound)


@differentiable_rows
def test_transposes_pass_the_dot_product_test(row: Sample) -> None:
    """<J t, ct> = <t, J' ct>, exactly up to rounding: forward and reverse mode are the same linear map."""
    function, args = differentiable(row)
    rng = np.random.default_rng(3)
    tangents = tuple(_noise(x, rng) for x in args)
    result, moved = nnc.jvp(function, args, tangents)
    cts = tuple(Array(_noise(np.asarray(y), rng)) for y in result)
    pulled = nnc.vjp(function, *args)[1](cts)
    left, right = inner_product(moved, cts), inner_product(pulled, tangents)
    np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9)


def _noise(x: Any, rng: np.random.Generator) -> Any:
    noise = rng.standard_normal(x.shape)
    return (noise + 1j * rng.standard_normal(x.shape) if x.dtype.kind == "c" else noise).astype(x.dtype)


@over([row for row in SAMPLES if row.operands])
def test_vmap_agrees_with_a_loop(row: Sample) -> None:
    rng = np.random.default_rng(11)
    every = tuple(range(len(row.operands)))
    for mapped in {every, *((i,) for i in every)}:
        stacks = [_stack(np.asarray(x), rng) if i in mapped else np.asarray(x) for i, x in enumerate(row.operands)]
        batched = [i in mapped for i in every]
        outputs, out_batched = run_batched(lambda *xs: run(row, xs), 2, stacks, batched)
        for k in range(2):
            single = run(row, [x[k] if b else x for x, b in zip(stacks, batched, strict=True)])
            for got, is_batched, want in zip(outputs, out_batched, single, strict=True):
                found = np.asarray(got)[k] if is_batched else np.asarray(got)
                np.testing.assert_allclose(found, np.asarray(want), rtol=1e-12, atol=1e-12, equal_nan=True)


def _stack(x: Any, rng: np.random.Generator) -> Any:
    """Two rows: the operand, and it with its elements in another order (so that it stays in its domain)."""
    return np.stack([x, rng.permutation(x.ravel()).reshape(x.shape)])


@rows
def test_graph_of_the_command_round_trips_through_json(row: Sample) -> None:
    builder = GraphBuilder()
    symbols = [builder.input(np.shape(x), np.asarray(x).dtype) for x in row.operands]
    outputs = builder.add(row.command, *symbols, **row.params)
    graph = nnc.graph.verify(builder.build(*(outputs if isinstance(outputs, tuple) else (outputs,))))
    again = from_json(to_json(graph))
    assert structurally_equal(graph, again) and str(graph) == str(again)
    for a, b in zip(graph.evaluate(row.operands), again.evaluate(row.operands), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@rows
def test_the_command_does_not_write_to_its_operands(row: Sample) -> None:
    before = [np.array(x) for x in row.operands]
    run(row, row.operands)
    for x, y in zip(before, row.operands, strict=True):
        np.testing.assert_array_equal(x, np.asarray(y))


def test_results_take_the_memory_of_operands_that_are_as_large() -> None:
    fitting: dict[tuple[str, int, int], bool] = {}
    for row in SAMPLES:
        facts = in_place_of(command(row.command), row.params)
        specs = tuple(TensorSpec(np.shape(x), np.asarray(x).dtype) for x in row.operands)
        outputs = infer_specs(command(row.command), specs, row.params)
        for i, j in facts.overwrite:
            fits = i < len(specs) and j < len(outputs) and specs[i].nbytes == outputs[j].nbytes
            fitting[row.command, i, j] = fitting.get((row.command, i, j), False) or fits
    assert len(fitting) > 50 and [key for key, fits in fitting.items() if not fits] == []
