"""Iterative solvers of linear systems under jax.scipy.sparse.linalg's names: a matrix may be a function of vectors.

Vectors are pytrees. The derivative is that of the system's solution, whose transpose is a system, too: no step is kept.
"""

# ruff: noqa: F403  (the list names all imports)

from nnc.scipy.sparse.linalg import solvers
from nnc.scipy.sparse.linalg.solvers import *

__all__ = solvers.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
