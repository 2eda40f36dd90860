"""Special functions of mathematics and statistics. Operands are real arrays of any shapes, which broadcast; of `wofz` complex ones.

Integers become float32, 16-bit floats are accepted. Functions beyond nnc.numpy's are computed in float64 and rounded once.
"""

# ruff: noqa: F403  (each file lists its names)

from nnc import numpy as _numpy
from nnc.errors.names.lookup import listed_names
from nnc.numpy import (
    betaln as betaln,
)
from nnc.numpy import (
    digamma as digamma,
)
from nnc.numpy import (
    erf as erf,
)
from nnc.numpy import (
    erfc as erfc,
)
from nnc.numpy import (
    erfinv as erfinv,
)
from nnc.numpy import (
    expit as expit,
)
from nnc.numpy import (
    gammaln as gammaln,
)
from nnc.numpy import (
    i0 as i0,
)
from nnc.numpy import (
    i0e as i0e,
)
from nnc.numpy import (
    i1 as i1,
)
from nnc.numpy import (
    i1e as i1e,
)
from nnc.numpy import (
    logit as logit,
)
from nnc.numpy import (
    logsumexp as logsumexp,
)
from nnc.numpy import (
    xlog1py as xlog1py,
)
from nnc.numpy import (
    xlogy as xlogy,
)
from nnc.scipy.special.bessel import *
from nnc.scipy.special.dilogarithm import *
from nnc.scipy.special.entropies import *
from nnc.scipy.special.exponential_integrals import *
from nnc.scipy.special.faddeeva import *
from nnc.scipy.special.gammas import *
from nnc.scipy.special.harmonics import *
from nnc.scipy.special.hypergeometric import *
from nnc.scipy.special.incomplete_beta import *
from nnc.scipy.special.incomplete_gamma import *
from nnc.scipy.special.normal import *
from nnc.scipy.special.oscillating_integrals import *
from nnc.scipy.special.products import *
from nnc.scipy.special.zetas import *

__all__ = listed_names(__name__, source=_numpy)


def __dir__() -> list[str]:
    return sorted(__all__)
