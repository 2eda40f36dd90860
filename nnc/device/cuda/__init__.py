"""NVIDIA's graphics processors, `cuda:0` and others, by CuPy and CUDA's driver."""

from nnc.device.cuda.context import CudaStream
from nnc.device.cuda.device import CudaDevice
from nnc.device.cuda.driver import CudaDriver
from nnc.device.cuda.graphs import CapturedCall, StepRun
from nnc.device.cuda.libraries import Libraries, number_of_gpus
from nnc.device.cuda.library_calls import LibraryCall, Operand, RepeatedCall
from nnc.device.cuda.memory import Completion, Lease

__all__ = [
    "CapturedCall", "Completion", "CudaDevice", "CudaDriver", "CudaStream", "Lease", "Libraries", "LibraryCall", "Operand",
    "RepeatedCall", "StepRun", "number_of_gpus",
]  # fmt: skip
