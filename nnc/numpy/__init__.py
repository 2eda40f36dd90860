"""NumPy's functions on nnc arrays: they run at once, trace, differentiate and batch.

Each file lists the names that it adds to the namespace.
"""

# ruff: noqa: F403  (the lists name all imports)

from typing import TYPE_CHECKING

from nnc.base.exports import listed_names
from nnc.errors.names import module_getattr
from nnc.numpy import fft as fft
from nnc.numpy import linalg as linalg
from nnc.numpy import methods as _methods  # noqa: F401  (gives arrays their methods)
from nnc.numpy.bessel import *
from nnc.numpy.contractions import *
from nnc.numpy.creation import *
from nnc.numpy.elementwise import *
from nnc.numpy.functional import *
from nnc.numpy.grids import *
from nnc.numpy.histograms import *
from nnc.numpy.joining import *
from nnc.numpy.manipulation import *
from nnc.numpy.moments import *
from nnc.numpy.namespace import *
from nnc.numpy.padding import *
from nnc.numpy.parts import *
from nnc.numpy.polynomials import *
from nnc.numpy.reductions import *
from nnc.numpy.repetition import *
from nnc.numpy.searching import *
from nnc.numpy.sets import *
from nnc.numpy.signals import *
from nnc.numpy.special import *
from nnc.numpy.statistics import *
from nnc.numpy.text import *
from nnc.numpy.types import *

__all__ = listed_names(__name__, "fft", "linalg")


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # to which a name that is not there would be one of type NoReturn
    __getattr__ = module_getattr("nnc.numpy")
