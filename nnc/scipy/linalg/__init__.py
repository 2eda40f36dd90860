"""Linear algebra under jax.scipy.linalg's names: matrices are the last two axes, all before them are batches.

Integers become float32; 16-bit floats are computed in float32. SciPy's arguments `overwrite_a` and `check_finite` do not exist:
arrays are immutable, and decompositions that need finite numbers refuse others.
"""

# ruff: noqa: F403  (the lists name all imports)

from nnc.numpy.linalg import det, inv, solve_triangular
from nnc.scipy.linalg import factorizations, fixed, functions, spectral, structured
from nnc.scipy.linalg.factorizations import *
from nnc.scipy.linalg.fixed import *
from nnc.scipy.linalg.functions import *
from nnc.scipy.linalg.spectral import *
from nnc.scipy.linalg.structured import *

__all__ = ["det", "inv", "solve_triangular"]
__all__ += factorizations.__all__
__all__ += fixed.__all__
__all__ += functions.__all__
__all__ += spectral.__all__
__all__ += structured.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
