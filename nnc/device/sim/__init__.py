"""A simulated device: memory that the host cannot read, and streams that run in an order which only events decide."""

from nnc.device.sim.device import SimDevice
from nnc.device.sim.kernels import Operand, SimKernel
from nnc.device.sim.memory import Lease, SimPool
from nnc.device.sim.streams import SimEvent, SimStream, Use

__all__ = ["Lease", "Operand", "SimDevice", "SimEvent", "SimKernel", "SimPool", "SimStream", "Use"]
