"""Other figures of the machine for one module, in a test."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest


def set_figures(patch: pytest.MonkeyPatch, module: ModuleType, group: str, **figures: float) -> None:
    """Replaces figures of a group of the target, as the module sees them."""
    name = f"_{group.upper()}"
    patch.setattr(module, name, replace(getattr(module, name), **figures))  # type: ignore[arg-type]
