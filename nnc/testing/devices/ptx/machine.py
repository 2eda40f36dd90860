"""Runs a wave: groups of threads that stand at one instruction, the least first, so that branches come together again.

A group waits at a barrier, shuffle or vote until all threads have come that belong to it. Where only waiting groups are left,
threads are missing, which is a mistake of the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nnc.testing.devices.ptx.faults import Fault
from nnc.testing.devices.ptx.instructions.warps import missing_lanes
from nnc.testing.devices.ptx.program import Kind, Op
from nnc.testing.devices.ptx.values import Array, Mask
from nnc.testing.devices.ptx.wave import Wave

_Stack = tuple[int, ...]  # calls that a thread is in: the instructions they return to


@dataclass(slots=True)
class _Group:
    """Threads that stand at one instruction.

    Attributes:
        at: the number of the instruction.
        stack: the calls that the threads are in.
        waits: whether the threads wait for others to arrive.
    """

    at: int
    stack: _Stack
    mask: Mask
    waits: bool = False

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The order in which groups run."""
        return self.waits, -len(self.stack), self.at


class Machine:
    """Runs the threads of a wave.

    Args:
        executed: how often threads ran each instruction; the machine adds to it.
        most_steps: how many instructions a wave may run, each for any number of threads.
    """

    def __init__(self, ops: list[Op], wave: Wave, executed: Array, most_steps: int) -> None:
        self._ops, self._wave, self._executed, self._left = ops, wave, executed, most_steps
        self._groups: list[_Group] = []
        self.at = 0  # the present instruction, for messages

    def run(self, start: int) -> None:
        """Runs all threads from the instruction `start` to their ends.

        Raises:
            Fault: a thread made a mistake.
        """
        self._groups.append(_Group(start, (), None))
        with np.errstate(all="ignore"):
            while self._groups:
                group = min(self._groups, key=lambda each: each.rank)
                self._groups.remove(group)
                self._run_group(group)

    def _run_group(self, group: _Group) -> None:
        """Runs a group until it splits, waits, or comes to others."""
        wave, ops, at = self._wave, self._ops, group.at
        meets = {each.at for each in self._groups if each.stack == group.stack}
        count = len(wave.lanes_of(group.mask))
        while True:
            op = ops[at]
            self.at = at
            self._left -= 1
            if self._left < 0:
                raise Fault("is reached after too many instructions", None, "end the loop, or raise most_steps")
            active = group.mask if op.guard is None else self._guarded(op, group.mask)
            is_all = op.guard is None or active is group.mask
            self._executed[at] += count if is_all else len(wave.lanes_of(active))
            group.at = at
            if op.kind is not Kind.STEP:
                self._move(op, group, active)
                return
            if op.members is not None and self._waits(op, group, active):
                return
            if op.step is not None and (is_all or (active is not None and active.any())):
                op.step(wave, active)
            at += 1
            if at in meets:
                self._join(_Group(at, group.stack, group.mask))
                return

    def _guarded(self, op: Op, mask: Mask) -> Mask:
        """Returns the threads whose predicate lets them take part; `mask` itself where all do."""
        assert op.guard is not None
        wave = self._wave
        given = np.broadcast_to(op.guard(wave, mask), wave.lanes)
        active = wave.mask_of(mask) & (~given if op.negated else given)
        return mask if active.sum() == len(wave.lanes_of(mask)) else active

    def _waits(self, op: Op, group: _Group, active: Mask) -> bool:
        """Puts a group back that lacks lanes of a warp, if these may still come."""
        assert op.members is not None
        missing = missing_lanes(self._wave, active, op.members(self._wave, active))
        if not missing.any():
            return False
        self._wait(group, missing, "without all lanes of a warp that it names, of which this one is missing")
        return True

    def _wait(self, group: _Group, missing: Array, problem: str) -> None:
        self._executed[group.at] -= len(self._wave.lanes_of(group.mask))  # it runs when the others have come
        if all(each.waits for each in self._groups):
            raise Fault(f"runs {problem}", int(np.argmax(missing)), "let all threads come to it, outside of branches")
        group.waits = True
        self._groups.append(group)

    def _join(self, group: _Group) -> None:
        """Adds a group to those that wait or run; one at the same instruction takes it in."""
        for other in self._groups:
            if other.at == group.at and other.stack == group.stack:
                mask = self._wave.mask_of(other.mask) | self._wave.mask_of(group.mask)
                is_full = len(self._wave.lanes_of(mask)) == len(self._wave.all_lanes)
                other.mask, other.waits = None if is_full else mask, False
                return
        self._groups.append(group)

    def _move(self, op: Op, group: _Group, active: Mask) -> None:
        """Runs an instruction that decides where threads go on."""
        self._stay(group, active)
        at, stack = group.at, group.stack
        if active is not None and not active.any():
            return
        if op.kind is Kind.JUMP:
            self._jump(op, stack, active)
        elif op.kind is Kind.CALL:
            self._copy(op.copies[0], active)
            self._join(_Group(op.targets[0], (*stack, at), active))
        elif op.kind is Kind.RETURN and stack:
            self._copy(self._ops[stack[-1]].copies[1], active)
            self._join(_Group(stack[-1] + 1, stack[:-1], active))
        elif op.kind is Kind.BARRIER:
            self._barrier(group)
        elif op.kind is Kind.TRAP:
            raise Fault(
                "stops the kernel", int(self._wave.lanes_of(active)[0]), "see why the kernel refuses its operands"
            )

    def _stay(self, group: _Group, active: Mask) -> None:
        """Sends the threads on that do not take part."""
        if active is not group.mask:
            rest = self._wave.mask_of(group.mask) & ~self._wave.mask_of(active)
            self._join(_Group(group.at + 1, group.stack, rest))

    def _jump(self, op: Op, stack: _Stack, active: Mask) -> None:
        if op.index is None:
            self._join(_Group(op.targets[0], stack, active))
            return
        index = np.broadcast_to(op.index(self._wave, active), self._wave.lanes)
        mask = self._wave.mask_of(active)
        for value in np.unique(index[mask]):
            if value >= len(op.targets):
                lane = int(np.argmax(mask & (index == value)))
                raise Fault(f"branches to entry {value} of a table of {len(op.targets)}", lane, "test the index first")
            self._join(_Group(op.targets[int(value)], stack, mask & (index == value)))

    def _barrier(self, group: _Group) -> None:
        wave = self._wave
        came, needed = (wave.mask_of(each).reshape(wave.blocks, -1) for each in (group.mask, None))
        blocks = np.logical_or.reduce(came, axis=1)
        missing = (needed & ~came & blocks[:, None]).reshape(-1)
        if missing.any():
            self._wait(group, missing, "without all threads of the block, of which this one is missing")
            return
        wave.order.pass_barrier(blocks)
        self._join(_Group(group.at + 1, group.stack, group.mask))

    def _copy(self, pairs: tuple[tuple[str, str], ...], active: Mask) -> None:
        """Copies parameters between a function and its callee."""
        wave = self._wave
        for source, target in pairs:
            if source not in wave.parameters:
                raise Fault(f"passes {source.split(':')[1]}, which is not set", None, "store the parameter first")
            given, old = wave.parameters[source], wave.parameters.get(target)
            if active is None or old is None:
                wave.parameters[target] = _copied(given)
                continue
            mask = active[:, None]
            merged: Any = tuple(np.where(mask, new, each) for new, each in zip(given, old, strict=True))
            wave.parameters[target] = merged


def _copied(given: tuple[Array, Array]) -> tuple[Array, Array]:
    return given[0].copy(), given[1].copy()
