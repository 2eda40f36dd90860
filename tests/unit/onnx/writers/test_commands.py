"""Each command is the same in onnxruntime and when it is loaded again, or stands in the list of those without a form in ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import onnx

import nnc
from nnc.errors import UnsupportedError
from nnc.graph.registry import COMMANDS
from tests.contract.commands.sample import Sample, all_samples
from tests.sampling import sampled
from tests.unit.onnx.writers.test_export import in_pairs, run

# Matrices without an operator in ONNX but Det, special functions, draws by rejection, integers by Euclid, patterns of bits.
REFUSED = {
    "cholesky", "cofactor", "eig", "eigh", "lu", "pinv", "qr", "schur", "slogdet", "solve", "svd", "sylvester", "triangular_root",
    "triangular_solve", "fit", "i0e", "i1e", "ie_moment", "ine", "lgamma", "polygamma", "gamma_draw", "log_gamma_draw", "gcd",
    "lcm", "exponent", "ldexp", "nextafter",
}  # fmt: skip
REFUSED_COMPLEX = {"det", "sort"}  # commands of real numbers alone, with complex samples
# Commands of transforms, compilation and collectives, which have no samples; loops and branches are tested in test_export.
WITHOUT_SAMPLES = {
    "add_tapes", "all_gather", "all_gather_same", "all_to_all", "call", "callback", "case_of", "check_finite", "checkpoint",
    "custom_jvp", "custom_vjp", "fused", "isolated", "linear_solve", "merge_tapes", "pack", "pmax", "pmin", "ppermute",
    "process_index", "psum", "psum_scatter", "pull_iterations", "pull_only", "pure_callback", "pvary", "scan", "spread_tape",
    "sum_tape", "unit", "while", "with_epilogue",
}  # fmt: skip
# onnxruntime gives NaN for rows of -inf alone, of which nnc's softmax gives 0; an axis of size 0 has no maximum.
DIFFERENT = {"log_softmax-2x3-axes=(1,)", "softmax-2x3-axes=(1,)", "softmax-2x0-axes=(1,)", "logsumexp-2x0-axes=(1,)"}


def operands_of(sample: Sample) -> list[np.ndarray[Any, Any]]:
    arrays = list(map(np.asarray, sample.operands))
    if sample.params.get("dtype") == np.float64:
        return arrays
    return [array.astype(np.float32) if array.dtype == np.float64 else array for array in arrays]


def is_complex(sample: Sample) -> bool:
    return any(array.dtype.kind == "c" for array in operands_of(sample))


def has_form(sample: Sample) -> bool:
    """Whether a sample's operands hold elements, which engines want, and are real where the command has no form for others."""
    return all(array.size for array in operands_of(sample)) and not (
        sample.command in REFUSED_COMPLEX and is_complex(sample)
    )


def function_of(sample: Sample) -> Callable[..., Any]:
    return lambda *operands: COMMANDS[sample.command](*operands, **sample.params)


ROWS = [row for row in all_samples() if has_form(row) and str(row) not in DIFFERENT]
WRITTEN = [row for row in ROWS if row.command not in REFUSED]


@pytest.mark.parametrize("sample", sampled(WRITTEN, 40), ids=str)
def test_a_command_is_the_same_in_onnxruntime_and_when_it_is_loaded_again(sample: Sample) -> None:
    operands, fun = operands_of(sample), function_of(sample)
    names = [f"x{place}" for place in range(len(operands))]
    data = nnc.onnx.export(fun, operands, input_names=names)
    onnx.checker.check_model(data, full_check=True)
    feeds = dict(zip(names, map(in_pairs, operands), strict=True))
    wanted = [in_pairs(value) for value in nnc.tree.leaves(nnc.compile(fun)(*operands))]
    for found in (run(data, feeds), nnc.onnx.load(data)(feeds)):
        for value, other in zip(map(np.asarray, found), wanted, strict=True):
            assert (value.dtype, value.shape) == (other.dtype, other.shape)
            if other.dtype.kind == "f":
                np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-4)
            else:
                np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize("command", sorted(REFUSED | REFUSED_COMPLEX))
def test_a_command_without_a_form_is_refused_with_its_line(command: str) -> None:
    samples = [row for row in all_samples() if row.command == command and (command in REFUSED or is_complex(row))]
    assert samples
    for sample in samples:
        with pytest.raises(UnsupportedError, match=r"(?s)commands have no form in ONNX.*test_commands\.py"):
            nnc.onnx.export(function_of(sample), operands_of(sample))


def test_each_command_is_written_or_listed() -> None:
    written = {row.command for row in WRITTEN}
    known = {name for name in COMMANDS if not name.startswith(("test_", "double_doctest"))}  # nnc's own
    assert sorted(written | REFUSED | WITHOUT_SAMPLES) == sorted(known)
