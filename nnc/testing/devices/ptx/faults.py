"""Mistakes of kernels: found in the middle of an instruction, and worded where the kernel and its threads are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import numpy as np

from nnc.errors import DeviceError, user_error
from nnc.testing.devices.ptx.values import Array


class Fault(Exception):  # noqa: N818  (never reaches the caller: it is worded as a DeviceError)
    """A mistake of a kernel.

    Args:
        problem: the mistake, a clause whose subject is the instruction.
        lane: the thread, counted within its wave; None where it concerns no single one.
        fix: the remedy.
    """

    def __init__(self, problem: str, lane: int | None, fix: str) -> None:
        super().__init__(problem)
        self.problem, self.lane, self.fix = problem, lane, fix


def refuse(wrong: Array, lanes: Array, describe: Callable[[int], str], fix: str) -> None:
    """Raises a `Fault` for the first thread of which something is wrong.

    Args:
        wrong: for each of the lanes, or for each of their elements.
        lanes: threads, counted within their wave.
        describe: words the mistake of one of the lanes.
        fix: the remedy.
    """
    if wrong.any():
        i = int(np.argmax(wrong.reshape(len(lanes), -1).any(axis=1)))
        raise Fault(describe(i), int(lanes[i]), fix)


def unknown(where: str, text: str, problem: str) -> NoReturn:
    """Raises the error for a text that the interpreter does not know.

    Args:
        where: the module or kernel.
        text: the statement.
        problem: the part of it that is unknown.
    """
    fix = "print other instructions, or add this one to nnc.testing.devices.ptx."
    raise user_error(DeviceError, where, f"`{text}` is not known to the interpreter of PTX: {problem}.", fix=fix)
