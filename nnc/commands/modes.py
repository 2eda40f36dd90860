"""Modes of reading and writing at positions out of range: see `index.py` for their meaning."""

from __future__ import annotations

from typing import Any

from nnc.graph import TensorSpec

GATHER_MODES = ("error", "clip", "wrap", "drop", "fill")
SCATTER_MODES = ("error", "clip", "wrap", "drop")
SLICE_MODES = ("error", "clip")


def is_strict(*specs: TensorSpec, mode: str, **params: Any) -> bool:
    """Whether a command of these parameters raises on a position that is out of range (column `refuses`)."""
    return mode == "error"
