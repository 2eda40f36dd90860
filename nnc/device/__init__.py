"""Devices: the protocol that each implements, and the ones that there are."""

from nnc.base.options import CPU
from nnc.device.kinds import (
    DeviceKind,
    check_program,
    devices,
    find_device,
    interpreter_of,
    kind_of,
    load_kernels,
    machine_of,
    machine_of_device,
    register_kind,
)
from nnc.device.protocol import CUDA, Accelerator, Block, Device, Elements, SharingDevice

__all__ = [
    "CPU",
    "CUDA",
    "Accelerator",
    "Block",
    "Device",
    "DeviceKind",
    "Elements",
    "SharingDevice",
    "check_program",
    "devices",
    "find_device",
    "interpreter_of",
    "kind_of",
    "load_kernels",
    "machine_of",
    "machine_of_device",
    "register_kind",
]
