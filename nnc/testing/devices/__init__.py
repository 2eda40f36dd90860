"""Devices for tests, which every machine has. Importing this module makes them known to `nnc.devices` and to `device=`.

"sim:0", "sim:1" and so on compute by the CPU's kernels, but keep the rules of a GPU: memory that the host cannot read, and streams
that run in any order that events allow. "ptx:0" and so on do the same with kernels printed for CUDA, which an interpreter runs.

Example:
    >>> import nnc.testing.devices
    >>> nnc.device_put(nnp.ones(3), "sim:0") + 1
    Array([2., 2., 2.], dtype=float32, device=sim:0)
"""

from nnc.testing.devices.kinds import INTERPRETED, SIMULATED

__all__ = ["INTERPRETED", "SIMULATED"]


def __dir__() -> list[str]:
    return sorted(__all__)
