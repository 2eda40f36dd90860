"""The fixture of tests of nnc.numpy."""

from tests.unit.numpy.conftest import same

__all__ = ["same"]
