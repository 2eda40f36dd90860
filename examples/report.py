"""Reports of all examples: a table on standard output, and a chart as SVG, drawn without a plotting library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

COLORS = ("#1f6fb4", "#d9541e", "#2c8a4b", "#8457a8", "#b8860b", "#555555")
WIDTH, HEIGHT = 680, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 36, 46


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows below a header, in columns of equal width; numbers to the right, with four significant digits."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(line[i]) for line in (header, *cells)) for i in range(len(header))]
    right = [all(isinstance(row[i], (int, float, np.number)) for row in rows) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        return "  ".join(
            text.rjust(n) if end else text.ljust(n) for text, n, end in zip(row, widths, right, strict=True)
        ).rstrip()

    return "\n".join([line(header), "  ".join("-" * n for n in widths), *map(line, cells)])


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


@dataclass
class Chart:
    """Lines, points and bands over one pair of axes."""

    title: str
    x_label: str
    y_label: str
    _shapes: list[tuple[str, np.ndarray, np.ndarray, str, str]] = field(default_factory=list)

    def line(self, x: Any, y: Any, label: str = "", color: str | None = None) -> None:
        """A line through points."""
        self._add("line", x, y, label, color)

    def points(self, x: Any, y: Any, label: str = "", color: str | None = None) -> None:
        """A dot for each point."""
        self._add("points", x, y, label, color)

    def band(self, x: Any, low: Any, high: Any, label: str = "", color: str | None = None) -> None:
        """The area between two lines."""
        self._add("band", [*x, *reversed(list(x))], [*low, *reversed(list(high))], label, color)

    def _add(self, kind: str, x: Any, y: Any, label: str, color: str | None) -> None:
        x, y = np.asarray(x, float), np.asarray(y, float)
        if x.shape != y.shape or x.ndim != 1 or not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise ValueError(f"{label or kind}: give as many finite x as y, not {x.shape} and {y.shape}")
        self._shapes.append((kind, x, y, label, color or COLORS[len(self._shapes) % len(COLORS)]))

    def save(self, path: Path) -> None:
        """Writes the chart as SVG."""
        (x_low, x_high), (y_low, y_high) = (_span(np.concatenate([shape[i] for shape in self._shapes])) for i in (1, 2))

        def place(x: np.ndarray, y: np.ndarray) -> list[tuple[float, float]]:
            across = LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
            down = HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
            return [(round(float(a), 1), round(float(b), 1)) for a, b in zip(across, down, strict=True)]

        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            f'<text x="{LEFT}" y="20" font-size="15">{escape(self.title)}</text>',
            *self._axes(place, (x_low, x_high), (y_low, y_high)),
            *(_shape(kind, place(x, y), color) for kind, x, y, _, color in self._shapes),
            *self._legend(),
            "</svg>",
        ]
        path.write_text("\n".join(parts) + "\n", encoding="utf-8")

    def _axes(self, place: Any, x_span: tuple[float, float], y_span: tuple[float, float]) -> list[str]:
        parts = []
        for tick in _ticks(*x_span):
            ((across, _),) = place(np.array([tick]), np.array([y_span[0]]))
            parts.append(f'<line x1="{across}" y1="{TOP}" x2="{across}" y2="{HEIGHT - BOTTOM}" stroke="#e6e6e6"/>')
            parts.append(f'<text x="{across}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{tick:g}</text>')
        for tick in _ticks(*y_span):
            ((_, down),) = place(np.array([x_span[0]]), np.array([tick]))
            parts.append(f'<line x1="{LEFT}" y1="{down}" x2="{WIDTH - RIGHT}" y2="{down}" stroke="#e6e6e6"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{down + 4}" text-anchor="end">{tick:g}</text>')
        middle = (TOP + HEIGHT - BOTTOM) / 2
        parts.append(
            f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(self.x_label)}</text>'
        )
        parts.append(
            f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">{escape(self.y_label)}</text>'
        )
        return parts

    def _legend(self) -> list[str]:
        named = [(label, color) for _, _, _, label, color in self._shapes if label]
        parts = []
        for i, (label, color) in enumerate(named):
            top = TOP + 10 + 16 * i
            parts.append(f'<rect x="{WIDTH - 180}" y="{top - 8}" width="10" height="10" fill="{color}"/>')
            parts.append(f'<text x="{WIDTH - 165}" y="{top + 1}">{escape(label)}</text>')
        return parts


def _shape(kind: str, places: list[tuple[float, float]], color: str) -> str:
    if kind == "points":
        return "".join(f'<circle cx="{x}" cy="{y}" r="2.5" fill="{color}"/>' for x, y in places)
    path = " ".join(f"{x},{y}" for x, y in places)
    if kind == "band":
        return f'<polygon points="{path}" fill="{color}" fill-opacity="0.18"/>'
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.6"/>'


def _span(values: np.ndarray) -> tuple[float, float]:
    """The least and the greatest, apart."""
    low, high = float(values.min()), float(values.max())
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers between two."""
    raw = (high - low) / 5
    step = min((m * 10.0 ** np.floor(np.log10(raw)) for m in (1, 2, 5, 10)), key=lambda s: abs(s - raw))
    return [float(round(k * step, 12)) for k in range(int(np.ceil(low / step)), int(np.floor(high / step + 1e-9)) + 1)]
