"""Minima, roots and fixed points under scipy.optimize's names.

Solutions are differentiated by the equation that they solve, with regard to `args` and to all values that the function reads from
outside: no iteration is kept, and the first guess has no derivative.
"""

from nnc.scipy.optimize.minimization import minimize
from nnc.scipy.optimize.problems import OptimizeResults
from nnc.scipy.optimize.roots import fixed_point, root

__all__ = ["OptimizeResults", "fixed_point", "minimize", "root"]


def __dir__() -> list[str]:
    return sorted(__all__)
