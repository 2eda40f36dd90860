"""Devices: the protocol that each implements, and the ones that there are."""

from nnc.base.options import CPU
from nnc.device.known import check_program, devices, find_device, interpreter_of, set_interpreter
from nnc.device.protocol import (
    CUDA,
    INTERPRETED,
    SIMULATED,
    Accelerator,
    Block,
    Device,
    Elements,
    Event,
    Pool,
    SharingDevice,
    Stream,
    Transfer,
    kind_of,
)

__all__ = [
    "CPU",
    "CUDA",
    "INTERPRETED",
    "SIMULATED",
    "Accelerator",
    "Block",
    "Device",
    "Elements",
    "Event",
    "Pool",
    "SharingDevice",
    "Stream",
    "Transfer",
    "check_program",
    "devices",
    "find_device",
    "interpreter_of",
    "kind_of",
    "set_interpreter",
]
