"""The choice of a command's kernel: the best one of a machine, else the one that runs the command's reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnc.backends.numpy_ref import reference_kernel
from nnc.base.target import Target
from nnc.device import machine_of_device
from nnc.graph import Command, Kernel, TensorSpec, find_kernel, reference
from nnc.graph.kernels import kernels_for


def choose_kernel(
    command: Command, specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: Target | None = None
) -> Kernel:
    """Returns the best kernel that a backend has on a machine (None: this one's CPU) for these inputs, else the reference's.

    Raises:
        BackendError: the command has neither a kernel nor a reference.
    """
    return find_kernel(command, specs, params, machine) or reference_kernel(command, specs, params)


def candidate_kernels(
    command: Command, specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: Target | None = None
) -> list[Kernel]:
    """Returns a machine's kernels (None: this CPU's) for these inputs, first the one that `choose_kernel` names, last the
    reference's.

    Raises:
        BackendError: the command has neither a kernel nor a reference.
    """
    machine = machine or machine_of_device()
    found = [each for each in kernels_for(command, machine) if each.supports(specs, params)]
    if not found:
        return [choose_kernel(command, specs, params, machine)]
    if command in reference:
        found.append(reference_kernel(command, specs, params))
    return found
