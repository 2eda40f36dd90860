"""Coefficients of explicit Runge-Kutta methods.

RK23: Bogacki and Shampine (1989). RK45: Dormand and Prince (1980), with Shampine's continuous extension (1986). DOP853: Hairer,
Nørsett and Wanner, "Solving ordinary differential equations I", section II.10. The numbers stand in `tableaus.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Tableau:
    """An explicit method whose last stage is the first of the next step.

    Attributes:
        name: SciPy's name.
        order: the order of the error estimate.
        c: where each stage lies within the step.
        a: for each stage, the weights of those before it.
        b: the weights of the result.
        error: the weights of the error estimates, the derivative at the result included.
        extension: RK23, RK45: polynomials of the continuous extension, one for each stage, without a constant term; DOP853:
            weights of the stages in the terms of the extension beyond the third.
        further: stages that the extension needs beside those of the step, as (c, weights).
    """

    name: str
    order: int
    c: Row
    a: tuple[Row, ...]
    b: Row
    error: tuple[Row, ...]
    extension: tuple[Row, ...]
    further: tuple[tuple[float, Row], ...] = ()


def _read() -> Iterator[Tableau]:
    text = Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
    for name, coefficients in json.loads(text).items():
        yield Tableau(name, **{field: _tuples(value) for field, value in coefficients.items()})


def _tuples(x: Any) -> Any:
    return tuple([_tuples(y) for y in x]) if isinstance(x, list) else x


RK23, RK45, DOP853 = _read()
