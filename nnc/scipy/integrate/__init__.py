"""Integrals of samples and initial value problems under scipy.integrate's names."""

# ruff: noqa: F403  (the list names all imports)

from nnc.scipy.integrate import sampled
from nnc.scipy.integrate.ivp import solve_ivp
from nnc.scipy.integrate.sampled import *
from nnc.scipy.integrate.solution import OdeResult, OdeSolution

__all__ = ["OdeResult", "OdeSolution", "solve_ivp"]
__all__ += sampled.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
