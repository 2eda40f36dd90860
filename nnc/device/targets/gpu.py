"""Graphics processors: figures of an H100's data sheet, and assumptions; none of them was measured on a device."""

from __future__ import annotations

from dataclasses import fields
from functools import cache

from nnc.device.protocol import CUDA
from nnc.device.target import Fusion, GpuTarget, Grids, Schedule, Target
from nnc.device.targets import cpu_target
from nnc.device.targets.x86 import X86

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

_FUSION = Fusion(
    row_elements=1 << 15,  # as on a CPU, not measured: longer rows are traversed in several launches
    column_elements=1 << 10,
    nodes=96,
    operands=32,
)

_LOOPS = X86.loops._replace(tiles=())  # a block turns tiles in shared memory instead

_GRIDS = Grids(
    threads=256,  # eight blocks fill a multiprocessor, so that few threads wait where the last blocks end
    most_threads=1024,  # of a block, on every GPU
    vector_bytes=16,  # the widest access of one thread
    aligned_bytes=64,  # of places in the arena; arrays begin at multiples of 256
    kept_words=64,  # of the 128 registers that a thread has where 512 threads share a multiprocessor
    kept_vectors=8,
    vectors_at_once=4,  # 64 bytes under way for a thread, 128 KiB for the 2,048 threads of a multiprocessor
    lanes=32,
    shared_bytes=48 << 10,  # more must be asked for at the launch
    busy_threads=132 * 1024,  # half of the threads that an H100 holds, in 132 multiprocessors
    summands=256,  # 2e-6 of the sum is lost after some 1,000 terms in float32
    parts=512,  # four blocks for each multiprocessor, which take turns
    least_parts=4,  # the launch that adds up takes as long as 5 MB of memory
    part_rows=64,  # rows of 8 warps: each of them sums 8 before it waits for the others
    part_elements=1 << 14,  # 16 vectors of each of 256 threads
    scattered_share=8,  # smaller operands stay in the nearest cache, of which a thread reads each element by itself
    tile=32,  # elements; a warp reads a whole number of sectors of any dtype of 1 byte or more
    turned=8,  # float32 of a sector: shorter loops read whole sectors in any order
)


def gpu_target() -> GpuTarget:
    """Returns a graphics processor of this machine."""
    return _beside(cpu_target())


@cache
def _beside(host: Target) -> GpuTarget:
    of_host = {field.name: getattr(host, field.name) for field in fields(host)}
    own = {"kind": CUDA, "schedule": _SCHEDULE, "fusion": _FUSION, "loops": _LOOPS, "grids": _GRIDS}
    return GpuTarget(**(of_host | own))
