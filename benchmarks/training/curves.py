"""Losses and norms of parameters of training runs, and how far two of them lie apart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Curve:
    """The loss of each step, and the norm of all parameters after it."""

    losses: tuple[float, ...]
    norms: tuple[float, ...]


@dataclass(frozen=True)
class Difference:
    """The largest differences of two curves, relative to the second."""

    losses: float
    norms: float


def difference(found: Curve, wanted: Curve) -> Difference:
    """Compares two curves of as many steps; a number that is no number is infinitely far from others."""
    return Difference(_largest(found.losses, wanted.losses), _largest(found.norms, wanted.norms))


def _largest(found: tuple[float, ...], wanted: tuple[float, ...]) -> float:
    pairs = zip(found, wanted, strict=True)
    return max(d if (d := abs(x - y) / abs(y)) == d else float("inf") for x, y in pairs)


def table(title: str, nnc: Curve, torch: Curve) -> Iterator[str]:
    """Lines that show two curves side by side."""
    yield title
    yield f"{'step':>4}  {'loss: nnc':>12}  {'PyTorch':>12}  {'apart':>8}  {'norm: nnc':>12}  {'PyTorch':>12}  {'apart':>8}"
    rows = zip(nnc.losses, torch.losses, nnc.norms, torch.norms, strict=True)
    for step, (x, y, m, n) in enumerate(rows):
        yield f"{step:>4}  {x:>12.6f}  {y:>12.6f}  {x / y - 1:>8.0e}  {m:>12.5f}  {n:>12.5f}  {m / n - 1:>8.0e}"
    apart = difference(nnc, torch)
    yield f"largest differences: losses {apart.losses:.1e}, norms {apart.norms:.1e}"


def write(path: Path, curves: Mapping[str, Curve]) -> None:
    """Keeps curves by name."""
    kept = {name: {"losses": curve.losses, "norms": curve.norms} for name, curve in curves.items()}
    path.write_text(json.dumps(kept, indent=1) + "\n")


def read(path: Path) -> dict[str, Curve]:
    """The curves that `write` kept."""
    kept = json.loads(path.read_text())
    return {name: Curve(tuple(curve["losses"]), tuple(curve["norms"])) for name, curve in kept.items()}
