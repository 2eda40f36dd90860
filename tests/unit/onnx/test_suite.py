"""The standard's own cases, a sample of them in CI; `python -m tests.unit.onnx.suite` runs all."""

from __future__ import annotations

import collections
import warnings

import pytest

pytest.importorskip("onnx")
from tests.sampling import sampled
from tests.unit.onnx import suite

# random numbers are nnc's own; the transforms lie within float32's rounding of the largest number, which these cases do not allow
OTHERS = {
    "test_bernoulli", "test_bernoulli_double", "test_bernoulli_seed", "test_bernoulli_expanded", "test_bernoulli_double_expanded",
    "test_bernoulli_seed_expanded", "test_training_dropout", "test_training_dropout_default", "test_training_dropout_default_mask",
    "test_training_dropout_mask", "test_dft", "test_dft_axis", "test_dft_opset19", "test_dft_axis_opset19",
}  # fmt: skip


def test_the_cases_of_the_standard_pass() -> None:
    failed = {}
    for case in sampled(suite.cases(), 12):
        if case.name not in OTHERS:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    suite.run(case)
            except Exception as error:  # each one is reported
                failed[case.name] = f"{type(error).__name__}: {error}"
    assert failed == {}


def test_there_is_a_case_of_most_operators() -> None:
    counts = collections.Counter(case.operator for case in suite.cases())
    assert len(counts) > 200
    assert sum(counts.values()) >= 2000
