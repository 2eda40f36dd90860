"""NVIDIA's graphics processors, `cuda:0` and others, by CuPy and CUDA's driver."""

from nnc.devices.cuda.device import CudaDevice
from nnc.devices.cuda.driver import CudaDriver
from nnc.devices.cuda.graphs import CapturedCall, StepRun
from nnc.devices.cuda.libraries import Libraries, number_of_gpus
from nnc.devices.cuda.library_calls import LibraryCall, Operand, RepeatedCall
from nnc.devices.cuda.memory import Completion, Lease
from nnc.devices.cuda.streams import CudaStream

__all__ = [
    "CapturedCall", "Completion", "CudaDevice", "CudaDriver", "CudaStream", "Lease", "Libraries", "LibraryCall", "Operand",
    "RepeatedCall", "StepRun", "number_of_gpus",
]  # fmt: skip
