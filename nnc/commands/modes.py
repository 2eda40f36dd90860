"""Modes of reading and writing at positions out of range: see `index.py` for their meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnc.errors import ArgumentError, user_error
from nnc.graph import TensorSpec

GATHER_MODES = ("error", "clip", "wrap", "drop", "fill")
SCATTER_MODES = ("error", "clip", "wrap", "drop")
SLICE_MODES = ("error", "clip")


def check_mode(where: str, mode: str, modes: Sequence[str]) -> None:
    """Raises ArgumentError unless `mode` is one of `modes`."""
    if mode not in modes:
        raise user_error(
            ArgumentError, where, f"mode={mode!r} is unknown.", fix=f"use one of {', '.join(map(repr, modes))}.",
        )  # fmt: skip


def is_strict(*specs: TensorSpec, mode: str, **params: Any) -> bool:
    """Whether a command of these parameters raises on a position that is out of range (column `refuses`)."""
    return mode == "error"
