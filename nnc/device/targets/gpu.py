"""Graphics processors: figures of an H100's data sheet, and assumptions; none of them was measured on a device."""

from __future__ import annotations

from dataclasses import fields
from functools import cache

from nnc.base.target import Fusion, GpuTarget, Loops, Schedule, Target
from nnc.device.protocol import CUDA
from nnc.device.targets import cpu_target

_SCHEDULE = Schedule(
    call_seconds=2e-6,  # from the begin of a kernel that does nothing to the begin of the next one in its stream
    signal_seconds=1e-6,  # an event is awaited by the device itself, not by a thread
    flops_per_second=3e13,  # half of 67e12 float32 operations
    bytes_per_second=2.5e12,  # three quarters of 3.35e12
    compiled_call_seconds=2e-6,  # a launch takes the host about as long
    saved_seconds=4e-6,  # two kernels: less is not seen beside the launches
    saved_part=0.05,
    heavy_seconds=0.0,  # streams hold no thread and no lock
    message_seconds=2e-5,  # not measured: the launch of a kernel on each device, and a way through their links
    message_bytes_per_second=1e11,  # not measured: links between GPUs of one machine
    light_seconds=1e-5,  # 25 MB at full speed: such a kernel has a thread for each that the device can hold
    streams=4,  # small kernels of more chains are rare, and each stream is an event more in each call
)
_LOOPS = Loops(tiles=())  # a block turns tiles in shared memory instead


def gpu_target() -> GpuTarget:
    """Returns a graphics processor of this machine."""
    return _beside(cpu_target())


@cache
def _beside(host: Target) -> GpuTarget:
    of_host = {field.name: getattr(host, field.name) for field in fields(host)}
    own = {"kind": CUDA, "schedule": _SCHEDULE, "fusion": Fusion(), "loops": _LOOPS}
    return GpuTarget(**(of_host | own))
