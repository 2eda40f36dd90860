"""Nests in which nothing is reduced: each thread computes one vector of elements."""

from __future__ import annotations

import math

from nnc.backends.cuda.kernels.operands import Operands
from nnc.backends.cuda.kernels.values import ThreadValues
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.kernels.values import Scope


def print_elements(operands: Operands) -> DeviceKernel:
    """Prints a nest without a row: each thread computes one vector, and its number gives the indices of the outer loops.

    Inputs may lie where outputs do: only the thread that writes an element reads it.
    """
    return _Elements(operands, operands.lanes()).kernel()


class _Elements(ThreadValues):
    """Prints the elements of one nest."""

    def kernel(self) -> DeviceKernel:
        """Returns the kernel."""
        nest, threads = self.nest, self.operands.grids.threads
        counts = [nest.sizes[loop] // (self.width if loop == nest.vector else 1) for loop in nest.outer]
        units = math.prod(counts)
        blocks = -(-units // threads)
        self.begin("elements", threads)
        code, short = self.code, self.operands.is_short(blocks * threads)
        block, thread = self.number("ctaid.x", short), self.number("tid.x", short)
        unit = code.add(code.mul(block, code.like(block, threads)), thread)
        with self.under(code.compare("lt", unit, code.like(unit, units)) if units % threads else None):
            iterations = self.take_apart(unit, nest.outer, counts)
            if nest.vector is not None:
                iterations[nest.vector] = code.mul(iterations[nest.vector], code.integer(self.width))
            self.store_all(list(enumerate(self.graph.outputs)), Scope({}, iterations))
        code.ret()
        return DeviceKernel(self.text(), (self.launch((blocks, 1), threads),), self.operands.may_fail)
