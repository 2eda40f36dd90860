"""Devices: the protocol that each implements, and the ones that there are."""

from nnc.devices.known import check_device, devices, find_device
from nnc.devices.protocol import CPU, Block, Device, Event, Pool, Stream, Transfer, kind_of

__all__ = [
    "CPU",
    "Block",
    "Device",
    "Event",
    "Pool",
    "Stream",
    "Transfer",
    "check_device",
    "devices",
    "find_device",
    "kind_of",
]
