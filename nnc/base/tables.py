"""Writes reports: numbers of bytes, and tables."""

from __future__ import annotations

from collections.abc import Sequence


def format_bytes(nbytes: int) -> str:
    """A number of bytes for people."""
    value, unit = float(nbytes), 0
    while value >= 1024 and unit < 6:
        value, unit = value / 1024, unit + 1
    return f"{nbytes} B" if unit == 0 else f"{value:.2f} {'KMGTPE'[unit - 1]}iB"


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of text, in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
