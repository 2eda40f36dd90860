"""SciPy's package for sparse matrices: here only `linalg`, whose solvers take matrices as functions."""

from nnc.scipy.sparse import linalg

__all__ = ["linalg"]


def __dir__() -> list[str]:
    return sorted(__all__)
