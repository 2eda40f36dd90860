"""Fixtures of tests of CUDA's kernels."""

from tests.unit.lower.conftest import written  # noqa: F401  (waits for files that are written in the background)
