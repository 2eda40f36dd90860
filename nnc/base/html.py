"""Writes reports: HTML for notebooks, which call `_repr_html_` of an object, and tables and numbers of bytes as text."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nnc.base.later import later

_escape, _encode = later("html", "escape"), later("base64", "b64encode")
_compress, _checksum = later("zlib", "compress"), later("zlib", "crc32")
_SIDE = 64  # pixels of a picture at most, along each axis: more cells are sampled
_WIDTH = 160  # px on the screen
# blue, white and red, as ColorBrewer's RdBu has them
_LOW, _MIDDLE, _HIGH = (33, 102, 172), (247, 247, 247), (178, 24, 43)
_NOT_A_NUMBER = (120, 120, 120)


def show_text(title: str, text: str) -> str:
    """Shows a title above text in columns."""
    return f"<div><b>{_escape(title)}</b><pre>{_escape(text)}</pre></div>"


def show_array(title: str, values: np.ndarray[Any, Any], text: str) -> str:
    """Shows a title, a picture of the elements and their text.

    Args:
        text: the elements as text.
    """
    picture = draw(values)
    return f"<div><b>{_escape(title)}</b>{'' if picture is None else picture}<pre>{_escape(text)}</pre></div>"


class Branch(NamedTuple):
    """A line of a tree, and the branches below it."""

    text: str
    parts: Sequence[Branch] = ()


def show_tree(root: Branch, depth: int = 1) -> str:
    """Shows a tree whose branches open and close with a click; the root's line is the title.

    Args:
        depth: how many levels of branches are open at first.
    """
    return f'<div style="font-family:monospace">{_branch(root, depth)}</div>'


def _branch(branch: Branch, depth: int) -> str:
    line = _escape(branch.text)
    if not branch.parts:
        return f'<div style="margin-left:1em">{line}</div>'
    parts = "".join(_branch(part, depth - 1) for part in branch.parts)
    summary = f'<summary style="cursor:pointer">{line}</summary>'
    return f'<details style="margin-left:1em"{" open" if depth > 0 else ""}>{summary}{parts}</details>'


def draw(values: np.ndarray[Any, Any]) -> str | None:
    """Draws the elements as colours, blue below 0 and red above it: those of a matrix, of a vector as one row, else of the
    first matrix. Returns None for arrays with few elements, and for other dtypes than real numbers.

    Args:
        values: an array of any shape.
    """
    if values.size < 4 or values.ndim == 0 or values.dtype.kind in "cOSU":
        return None
    matrix = values[None] if values.ndim == 1 else values[(0,) * (values.ndim - 2)]
    rows, columns = (np.linspace(0, n - 1, min(n, _SIDE)).astype(int) for n in matrix.shape)
    cells = np.asarray(matrix[np.ix_(rows, columns)], np.float64)
    finite = np.abs(cells[np.isfinite(cells)])
    with np.errstate(all="ignore"):
        share = np.clip(cells / max(float(finite.max(initial=0)), 1e-300), -1, 1)[..., None]
    middle = np.array(_MIDDLE, np.float64)
    colours = middle + np.abs(share) * (np.where(share < 0, np.array(_LOW), np.array(_HIGH)) - middle)
    colours = np.where(np.isnan(cells)[..., None], np.array(_NOT_A_NUMBER), colours)
    encoded = _encode(_png(colours.round().astype(np.uint8))).decode()
    height = max(12, round(_WIDTH * len(rows) / len(columns)))
    style = f"width:{_WIDTH}px;height:{min(height, 2 * _WIDTH)}px;image-rendering:pixelated;display:block;border:1px solid #ccc"
    return f'<img alt="{values.shape}" style="{style}" src="data:image/png;base64,{encoded}">'


def _png(colours: np.ndarray[Any, Any]) -> bytes:
    """Returns a PNG of red, green and blue bytes (rows, columns, 3)."""
    rows, columns, _ = colours.shape
    lines = b"".join(b"\0" + line.tobytes() for line in colours)  # each begins with the number of its filter: none

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", _checksum(kind + data))

    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)  # 8 bits of each of 3 colours
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", _compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


# -- text ---------------------------------------------------------------------------------------------------------------


def format_bytes(nbytes: int) -> str:
    """Returns a number of bytes for people."""
    value, unit = float(nbytes), 0
    while value >= 1024 and unit < 6:
        value, unit = value / 1024, unit + 1
    return f"{nbytes} B" if unit == 0 else f"{value:.2f} {'KMGTPE'[unit - 1]}iB"


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of text, in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
