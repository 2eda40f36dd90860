"""Exports a stiff equation's solution by BDF formulas, with its gradient; stiff.c fits rates of reaction with it.

Robertson's reactions: A -> B, B + B -> C + B, B + C -> A + C. The solver's matrices are factored by LAPACK, which C links.

    python examples/exported/stiff.py --out out/stiff
    cc -Iout/stiff examples/exported/stiff.c out/stiff/stiff.o -llapack -lm -o fit && ./fit
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc.scipy.integrate import solve_ivp

TIMES = np.array([0.4, 4.0, 40.0])
RATES = np.array([0.04, 3e7, 1e4])


def concentrations(rates: Any) -> Any:
    """float64[3, times]: the shares of A, B and C."""

    def change(t: Any, y: Any) -> Any:
        a, b, c = y
        first, second, third = rates[0] * a, rates[1] * b * b, rates[2] * b * c
        return nnp.stack([third - first, first - second - third, second])

    return solve_ivp(change, (0.0, TIMES[-1]), np.array([1.0, 0.0, 0.0]), method="BDF", t_eval=TIMES, rtol=1e-5).y


def stiff(logarithms: Any, measured: Any) -> Any:
    """The squared error of the shares of C, and its gradient by the logarithms of the rates."""

    def error(logarithms: Any) -> Any:
        return nnp.sum((concentrations(nnp.exp(logarithms))[2] - measured) ** 2)

    return nnc.value_and_grad(error)(logarithms)


def main() -> None:
    """Exports the error and its gradient."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/stiff"), help="folder to make")
    options = parser.parse_args()
    specs = nnc.ShapeDtypeStruct((3,), "float64"), nnc.ShapeDtypeStruct((3,), "float64")
    print(nnc.export(stiff, *specs, path=options.out, max_steps=200, lapack="link"))
    print("shares of C:", *np.asarray(nnc.compile(concentrations)(RATES))[2])


if __name__ == "__main__":
    main()
