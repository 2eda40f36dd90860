"""Kinds of machines that were measured, one a file."""

from functools import cache
from pathlib import Path

from nnc.base import machine
from nnc.device.target import Target
from nnc.device.targets.intel import INTEL
from nnc.device.targets.x86 import X86


@cache
def cpu_target() -> Target:
    """Returns the figures of this machine's processor."""
    return INTEL if "Intel" in machine.processor(Path("/proc/cpuinfo"))["model"] else X86
