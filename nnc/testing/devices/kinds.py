"""The records of the simulated devices. They are registered as those of another package would be (see `nnc.device.kinds`)."""

from dataclasses import replace

from nnc.base.target import Target
from nnc.compiled.device_program import program_of
from nnc.device import CPU, CUDA, DeviceKind, register_kind
from nnc.device.targets import cpu_target
from nnc.device.targets.gpu import gpu_target
from nnc.testing.devices.interpreted import PtxDevice
from nnc.testing.devices.interpreted_program import InterpretedModule
from nnc.testing.devices.sim import SimDevice
from nnc.testing.devices.simulated_program import SimModule
from nnc.trace.core.on_device import make_interpreter

SIMULATED = "sim"
"""The name, without its number, of a simulated device, which runs the CPU's kernels.

Example:
    >>> nnc.device_put(nnp.ones(2), f"{SIMULATED}:0").device
    'sim:0'
"""
INTERPRETED = "ptx"
"""The name, without its number, of a device that interprets kernels printed for CUDA.

Example:
    >>> nnc.device_put(nnp.ones(2), f"{INTERPRETED}:0").device
    'ptx:0'
"""


def _simulated() -> Target:
    """Returns a processor whose work is queued as that of a graphics processor."""
    return replace(cpu_target(), schedule=gpu_target().schedule)


register_kind(
    DeviceKind(
        name=SIMULATED,
        backend=CPU,
        make=SimDevice,
        interpreter=lambda: make_interpreter,
        queue=lambda: program_of,
        program=lambda: SimModule,
        machine=_simulated,
    )
)
register_kind(
    DeviceKind(
        name=INTERPRETED,
        backend=CUDA,
        make=PtxDevice,
        interpreter=lambda: make_interpreter,
        queue=lambda: program_of,
        program=lambda: InterpretedModule,
        machine=gpu_target,
    )
)
