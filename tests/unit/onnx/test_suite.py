"""The standard's own cases, of which CI runs a part: `python -m tests.unit.onnx.suite` runs all."""

from __future__ import annotations

import warnings

import pytest

from tests.unit.onnx import suite

# Random numbers, and results of which the standard asks for more digits than float32 holds.
DIFFERENT = {
    "test_bernoulli", "test_bernoulli_double", "test_bernoulli_double_expanded", "test_bernoulli_expanded",
    "test_bernoulli_seed", "test_bernoulli_seed_expanded", "test_dft", "test_dft_axis", "test_dft_axis_opset19",
    "test_dft_opset19", "test_training_dropout", "test_training_dropout_default", "test_training_dropout_default_mask",
    "test_training_dropout_mask",
}  # fmt: skip


@pytest.mark.parametrize("case", suite.cases(), ids=lambda case: case.name)
def test_the_standard_s_own_cases_pass(case: suite.Case) -> None:
    if case.name in DIFFERENT:
        pytest.skip("the standard leaves the numbers open, or asks for more digits than float32 holds")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        suite.run(case)
