"""Machines with other figures, for tests."""

from __future__ import annotations

from dataclasses import replace

from nnc.base.target import Target
from nnc.device import machine_of_device

HERE = machine_of_device()


def with_figures(group: str, machine: Target = HERE, **figures: float) -> Target:
    """A machine with other figures in one group; by default this one."""
    return replace(machine, **{group: getattr(machine, group)._replace(**figures)})
