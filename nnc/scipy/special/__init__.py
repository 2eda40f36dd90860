"""Special functions of mathematics and statistics. Operands are real arrays of any shapes, which broadcast.

Integers become float32, 16-bit floats are accepted. Functions beyond nnc.numpy's are computed in float64 and rounded once.
"""

from nnc.numpy import (
    betaln,
    digamma,
    erf,
    erfc,
    erfinv,
    expit,
    gammaln,
    i0,
    i0e,
    i1,
    i1e,
    logit,
    logsumexp,
    polygamma,
    xlog1py,
    xlogy,
)
from nnc.scipy.special.gammas import beta, gamma, gammasgn
from nnc.scipy.special.incomplete_beta import betainc, betaincc
from nnc.scipy.special.incomplete_gamma import gammainc, gammaincc
from nnc.scipy.special.normal import erfcx, log_ndtr, ndtr, ndtri

__all__ = [
    "beta",
    "betainc",
    "betaincc",
    "betaln",
    "digamma",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "expit",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "gammasgn",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "log_ndtr",
    "logit",
    "logsumexp",
    "ndtr",
    "ndtri",
    "polygamma",
    "xlog1py",
    "xlogy",
]


def __dir__() -> list[str]:
    return sorted(__all__)
