"""A simulated device: memory that the host cannot read, and streams that run in an order which only events decide."""

from nnc.testing.devices.sim.device import SimDevice
from nnc.testing.devices.sim.kernels import Operand, SimKernel
from nnc.testing.devices.sim.memory import Lease, SimPool
from nnc.testing.devices.sim.streams import SimEvent, SimStream, Use

__all__ = ["Lease", "Operand", "SimDevice", "SimEvent", "SimKernel", "SimPool", "SimStream", "Use"]
