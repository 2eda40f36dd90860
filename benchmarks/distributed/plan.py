"""Efficiencies of measured steps, and a plan for many ranks by the model of latency and bandwidth (Hockney, 1994).

A sum over n ranks of b bytes takes 2 log2(n) α + 2 (n - 1) / n b β: a scatter and a gather by halving and doubling (Thakur,
Rabenseifner and Gropp, 2005). α, seconds a message, and β, seconds a byte, are fitted to measured times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log2
from typing import NamedTuple

import numpy as np

from benchmarks.tables import Cell


class Measured(NamedTuple):
    """The seconds of one sum of so many bytes over so many ranks."""

    ranks: int
    nbytes: int
    seconds: float


@dataclass(frozen=True)
class Model:
    """Latency and inverse bandwidth of sums: seconds a message, seconds a byte."""

    alpha: float
    beta: float

    def seconds(self, ranks: int, nbytes: float) -> float:
        """The time of a sum."""
        messages, share = _terms(ranks, nbytes)
        return messages * self.alpha + share * self.beta


class Step(NamedTuple):
    """A measured training step: the examples of all ranks, seconds a step, and the share of it that collectives take."""

    model: str
    mode: str
    ranks: int
    examples: int
    seconds: float
    share: float

    @property
    def rate(self) -> float:
        """Examples a second."""
        return self.examples / self.seconds


def fit(measured: Iterable[Measured]) -> Model:
    """The model with the least relative errors; neither of its numbers is negative."""
    rows = [m for m in measured if m.ranks > 1]
    if len({m.nbytes for m in rows}) < 2:
        raise ValueError("a fit needs times of two sizes on more than one rank")
    terms = np.array([_terms(m.ranks, m.nbytes) for m in rows]) / np.array([[m.seconds] for m in rows])
    ones = np.ones(len(rows))
    found = np.linalg.lstsq(terms, ones, rcond=None)[0]
    if (found < 0).any():  # the best without the other term, where that lies at the edge
        single = [float(column @ ones / (column @ column)) for column in terms.T]
        errors = [float(np.sum((column * x - 1) ** 2)) for column, x in zip(terms.T, single, strict=True)]
        found = np.where(np.arange(2) == np.argmin(errors), single, 0.0)
    return Model(float(found[0]), float(found[1]))


def _terms(ranks: int, nbytes: float) -> tuple[float, float]:
    """The number of messages and of bytes: the factors of α and β."""
    return 2 * log2(ranks), 2 * (ranks - 1) / ranks * nbytes


def scaling_table(steps: Iterable[Step]) -> list[list[Cell]]:
    """A line for each step: its rate, and the efficiency, which is the rate over that of one rank times the number of ranks."""
    steps = list(steps)
    one = {(s.model, s.mode): s.rate for s in steps if s.ranks == 1}
    return [
        [
            s.model, s.mode, s.ranks, s.examples, f"{1e3 * s.seconds:.2f}", round(s.rate),
            f"{100 * s.rate / (s.ranks * one[s.model, s.mode]):.0f} %", f"{100 * s.share:.0f} %",
        ]
        for s in steps
    ]  # fmt: skip


def plan_table(model: Model, compute: Mapping[str, tuple[int, float, int]], ranks: Iterable[int]) -> list[list[Cell]]:
    """A line for each network and number of ranks; each rank has as many examples as the measured one.

    Args:
        model: of sums.
        compute: by network: examples and seconds of a step on one rank, and bytes of its gradients.
        ranks: the numbers of ranks.
    """
    lines: list[list[Cell]] = []
    for name, (examples, seconds, nbytes) in compute.items():
        for n in ranks:
            summed = model.seconds(n, nbytes)
            apart, beside = seconds + summed, max(seconds, seconds / 3 + summed)
            lines.append([
                name, n, f"{1e3 * summed:.2f}", round(n * examples / apart), f"{100 * seconds / apart:.0f} %",
                f"{100 * seconds / beside:.0f} %",
            ])  # fmt: skip
    return lines
