"""Kinds of machines that were measured, one a file."""

from functools import cache
from pathlib import Path

from nnc import machine
from nnc.devices.target import Target
from nnc.devices.targets.intel import INTEL
from nnc.devices.targets.x86 import X86


@cache
def cpu_target() -> Target:
    """Returns the figures of this machine's processor."""
    return INTEL if "Intel" in machine.processor(Path("/proc/cpuinfo"))["model"] else X86
