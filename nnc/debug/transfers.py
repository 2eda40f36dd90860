"""Finds copies between the host and devices that nobody asked for."""

from __future__ import annotations

from typing import Literal

from nnc.array.device_array import ERROR, WARN, TransferWarning
from nnc.base.context import ContextChange, with_mode
from nnc.errors.errors import check_choice

__all__ = ["TransferWarning", "transfers"]


def transfers(action: Literal["warn", "error"]) -> ContextChange:
    """Within the block, each implicit copy between the host and a device gives a warning or an error.

    Explicit copies (`nnc.device_put`, `x.to_device`, `device=`) are none of these, and neither are Python numbers.

    Args:
        action: "warn" gives a `TransferWarning`, "error" raises.

    Returns:
        a block for `with`.

    Raises:
        ArgumentError: another action.
        DeviceError: (within the block of "error") an array is copied.

    Example:
        >>> import nnc.testing.devices  # simulated ones
        >>> x = nnc.device_put(np.ones(3, "float32"), "sim:0")
        >>> with nnc.debug.transfers("error"):
        ...     x + np.ones(3, "float32")
        Traceback (most recent call last):
        ...
        nnc.errors.DeviceError: transfer: 12 bytes (float32[3]) are copied from the host to sim:0.
        ...
    """
    check_choice("nnc.debug.transfers", "action", action, ("warn", "error"))
    return with_mode(WARN if action == "warn" else ERROR)
