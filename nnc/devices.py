"""Devices that programs can run on, and how many threads they take."""

from __future__ import annotations


def devices() -> list[str]:
    """The devices of this machine.

    Example:
        >>> nnc.devices()
        ['cpu']
    """
    return ["cpu"]
