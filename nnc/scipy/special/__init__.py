"""Special functions of mathematics and statistics. Operands are real arrays of any shapes, which broadcast; of `wofz` complex ones.

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
    xlog1py,
    xlogy,
)
from nnc.scipy.special.bessel import bessel_jn
from nnc.scipy.special.dilogarithm import owens_t, spence
from nnc.scipy.special.entropies import boxcox, boxcox1p, entr, kl_div, log_softmax, rel_entr, softmax
from nnc.scipy.special.exponential_integrals import exp1, expi, expn
from nnc.scipy.special.faddeeva import wofz
from nnc.scipy.special.gammas import beta, gamma, gammasgn
from nnc.scipy.special.harmonics import sph_harm_y
from nnc.scipy.special.hypergeometric import hyp1f1, hyp2f1
from nnc.scipy.special.incomplete_beta import betainc, betaincc
from nnc.scipy.special.incomplete_gamma import gammainc, gammaincc
from nnc.scipy.special.normal import erfcx, log_ndtr, ndtr, ndtri
from nnc.scipy.special.oscillating_integrals import dawsn, fresnel, sici
from nnc.scipy.special.products import comb, factorial, loggamma, multigammaln, poch
from nnc.scipy.special.zetas import bernoulli, polygamma, zeta

__all__ = [
    "bernoulli",
    "bessel_jn",
    "beta",
    "betainc",
    "betaincc",
    "betaln",
    "boxcox",
    "boxcox1p",
    "comb",
    "dawsn",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp1",
    "expi",
    "expit",
    "expn",
    "factorial",
    "fresnel",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "gammasgn",
    "hyp1f1",
    "hyp2f1",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "kl_div",
    "log_ndtr",
    "log_softmax",
    "loggamma",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "ndtri",
    "owens_t",
    "poch",
    "polygamma",
    "rel_entr",
    "sici",
    "softmax",
    "spence",
    "sph_harm_y",
    "wofz",
    "xlog1py",
    "xlogy",
    "zeta",
]


def __dir__() -> list[str]:
    return sorted(__all__)
