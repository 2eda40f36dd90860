"""The table of C functions through which a compiled entry reaches a device: names and signatures of CUDA's driver.

An entry calls these functions by their addresses alone. The same code runs on a GPU, where the addresses are the driver's, and
on a simulated device, where they lead back into Python (`nnc.testing.devices.sim.driver`). Each returns 0, or the number of an
error. One function is not the driver's: `RUN_STEP` queues the work of a step that has no printed kernel, such as a library's
call.

Source: CUDA Driver API, sections Execution Control, Event Management, Stream Management, Memory Management.
"""

from __future__ import annotations

import ctypes
from typing import Any

_C_TYPES: dict[str, Any] = {"p": ctypes.c_void_p, "u": ctypes.c_uint32, "q": ctypes.c_uint64}
_LLVM_TYPES = {"p": "ptr", "u": "i32", "q": "i64"}

RUN_STEP = "nncRunStep"
FAILED = 999  # CUDA_ERROR_UNKNOWN: of a function in Python, whose exception the driver keeps

# p: a pointer or a handle, u: an unsigned int, q: an address of the device, or a size
SIGNATURES: dict[str, str] = {
    "cuLaunchKernel": "puuuuuuuppp",  # function, grid (3), block (3), bytes of shared memory, stream, parameters, extra
    "cuEventRecord": "pp",  # event, stream
    "cuStreamWaitEvent": "ppu",  # stream, event, flags
    "cuMemcpyDtoHAsync_v2": "pqqp",  # target on the host, source, bytes, stream
    "cuStreamSynchronize": "p",  # stream
    "cuStreamWriteValue64_v2": "pqqu",  # stream, address, value, flags
    RUN_STEP: "ppp",  # handle of the step, stream, parameters
}

GRAPH_SIGNATURES: dict[str, str] = {  # of functions that Python calls
    "cuGraphCreate": "pu",  # graph, flags
    "cuGraphAddKernelNode_v2": "pppqp",  # node, graph, dependencies, their number, parameters
    "cuGraphAddChildGraphNode": "pppqp",  # node, graph, dependencies, their number, child
    "cuGraphInstantiateWithFlags": "ppq",  # executable graph, graph, flags
    "cuGraphExecKernelNodeSetParams_v2": "ppp",  # executable graph, node, parameters
    "cuGraphExecChildGraphNodeSetParams": "ppp",  # executable graph, node, child
    "cuGraphLaunch": "pp",  # executable graph, stream
    "cuGraphExecDestroy": "p",  # executable graph
    "cuGraphDestroy": "p",  # graph
    "cuStreamBeginCapture_v2": "pu",  # stream, mode
    "cuStreamEndCapture": "pp",  # stream, graph
}


def place_in_table(name: str) -> int:
    """Returns the position of a function in the table."""
    return list(SIGNATURES).index(name)


def llvm_types(name: str) -> list[str]:
    """Returns the types of a function's parameters, as LLVM writes them."""
    return [_LLVM_TYPES[letter] for letter in SIGNATURES[name]]


def c_function(name: str) -> Any:
    """Returns the type of a function, for ctypes."""
    letters = SIGNATURES.get(name) or GRAPH_SIGNATURES[name]
    return ctypes.CFUNCTYPE(ctypes.c_int32, *[_C_TYPES[letter] for letter in letters])
