"""NumPy's functions on nnc arrays: they run at once, trace, differentiate and batch.

Each file lists the names that it adds to the namespace. Files that many programs do without are imported when one of their names is
first asked for.
"""

# ruff: noqa: F403  (the lists name all imports)

from typing import TYPE_CHECKING

from nnc.errors.names.lookup import listed_names, public_names
from nnc.numpy import methods as _methods  # noqa: F401  (gives arrays their methods)
from nnc.numpy.contractions import *
from nnc.numpy.creation import *
from nnc.numpy.elementwise import *
from nnc.numpy.joining import *
from nnc.numpy.manipulation import *
from nnc.numpy.moments import *
from nnc.numpy.namespace import *
from nnc.numpy.reductions import *
from nnc.numpy.repetition import *
from nnc.numpy.searching import *
from nnc.numpy.types import *

if TYPE_CHECKING:
    from nnc.numpy import fft as fft
    from nnc.numpy import linalg as linalg
    from nnc.numpy.angles import *
    from nnc.numpy.bessel import *
    from nnc.numpy.comparisons import *
    from nnc.numpy.functional import *
    from nnc.numpy.grids import *
    from nnc.numpy.histograms import *
    from nnc.numpy.matrices import *
    from nnc.numpy.padding import *
    from nnc.numpy.parts import *
    from nnc.numpy.polynomials import *
    from nnc.numpy.sets import *
    from nnc.numpy.signals import *
    from nnc.numpy.special import *
    from nnc.numpy.statistics import *
    from nnc.numpy.text import *

# The names of files that are imported later.
_LATER = {
    "angles": "angle deg2rad degrees rad2deg radians",
    "bessel": "i0 i0e i1 i1e sinc",
    "comparisons": "allclose array_equal array_equiv isclose iscomplex isneginf isposinf isreal nan_to_num",
    "fft": "fft",
    "functional": "apply_along_axis apply_over_axes fromfunction piecewise vectorize",
    "grids": "c_ diag_indices diag_indices_from fill_diagonal index_exp indices ix_ mask_indices meshgrid mgrid ogrid r_ s_ "
    "tril_indices tril_indices_from triu_indices triu_indices_from",
    "histograms": "histogram histogram2d histogram_bin_edges histogramdd",
    "linalg": "linalg",
    "matrices": "diag diagflat eye identity tri tril triu vander",
    "padding": "pad",
    "parts": "bitwise_count frexp gcd lcm ldexp modf packbits spacing unpackbits",
    "polynomials": "poly polyadd polyder polydiv polyfit polyint polymul polysub polyval roots",
    "sets": "intersect1d isin setdiff1d setxor1d union1d unique unique_all unique_counts unique_inverse unique_values",
    "signals": "bartlett blackman convolve correlate ediff1d gradient hamming hanning kaiser trim_zeros unwrap",
    "special": "betaln digamma erf erfc erfinv expit gammaln lgamma logit logsumexp polygamma segment_max segment_min "
    "segment_prod segment_sum xlog1py xlogy",
    "statistics": "average corrcoef cov cross interp kron median nanargmax nanargmin nancumprod nancumsum nanmax nanmean "
    "nanmedian nanmin nanpercentile nanprod nanquantile nanstd nansum nanvar percentile quantile trapezoid",
    "text": "array2string array_repr array_str get_printoptions printoptions set_printoptions",
}
_FILES = {name: f"nnc.numpy.{file}" for file, names in _LATER.items() for name in names.split()}

__all__ = listed_names(__name__, *_FILES)


if not TYPE_CHECKING:  # to which a name that is not there would be one of type NoReturn
    __getattr__, __dir__ = public_names("nnc.numpy", _FILES)
