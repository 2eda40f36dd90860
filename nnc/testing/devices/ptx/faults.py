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
        problem: the mistake, as a clause whose subject is the instruction.
        lane: the thread's number within its wave; None where no single thread is concerned.
    """

    def __init__(self, problem: str, lane: int | None, fix: str) -> None:
        super().__init__(problem)
        self.problem, self.lane, self.fix = problem, lane, fix


def refuse(wrong: Array, lanes: Array, describe: Callable[[int], str], fix: str) -> None:
    """Raises a `Fault` for the first thread that has made a mistake.

    Args:
        wrong: whether each lane, or each of its elements, is wrong.
        lanes: the threads' numbers within their wave.
        describe: returns the words for the mistake of one of the lanes.
    """
    if wrong.any():
        i = int(np.argmax(wrong.reshape(len(lanes), -1).any(axis=1)))
        raise Fault(describe(i), int(lanes[i]), fix)


def unknown(where: str, text: str, problem: str) -> NoReturn:
    """Raises the error for a text that the interpreter does not know.

    Args:
        where: the module or kernel, for the message.
        problem: the part of the text that is unknown.
    """
    fix = "print other instructions, or add this one to nnc.testing.devices.ptx."
    raise user_error(DeviceError, where, f"`{text}` is not known to the interpreter of PTX: {problem}.", fix=fix)
