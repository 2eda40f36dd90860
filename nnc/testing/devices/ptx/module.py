"""Modules of PTX, and the kernels in them, which run on arrays of the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import NoReturn

import numpy as np

from nnc.errors import DeviceError, user_error
from nnc.testing.devices.ptx.block_memory import PrivateMemory, lay_out
from nnc.testing.devices.ptx.counts import Counts
from nnc.testing.devices.ptx.decoding import Scope
from nnc.testing.devices.ptx.faults import Fault
from nnc.testing.devices.ptx.instructions.loads import width_of
from nnc.testing.devices.ptx.machine import Machine
from nnc.testing.devices.ptx.program import Op, decode
from nnc.testing.devices.ptx.regions import GlobalMemory, Region
from nnc.testing.devices.ptx.syntax import Function, Variable, parse
from nnc.testing.devices.ptx.values import Array, Type
from nnc.testing.devices.ptx.wave import Extent, Shape, Wave

_TABLES = 0x7900_0000_0000_0000  # addresses of variables of modules; no region lies there
_WAVE = 1 << 16  # threads that run side by side at most: their registers then stay in the caches of a core
_MOST_THREADS = 1024  # of a block, on every GPU
_MOST_STEPS = 20_000_000  # instructions of a wave: minutes


class PtxModule:
    """A module of PTX, ready to run.

    Args:
        text: PTX, as LLVM or a compiler of CUDA prints it.

    Raises:
        DeviceError: the text has a statement that the interpreter does not know.

    Example:
        >>> module = PtxModule(".visible .entry nothing(.param .u32 n) { ret; }")
        >>> list(module.entries)
        ['nothing']
    """

    def __init__(self, text: str) -> None:
        self.variables, functions = parse(text)
        self.functions = {function.name: function for function in functions}
        self.symbols: dict[str, int] = {}
        address = _TABLES
        self.tables: list[tuple[int, Variable]] = []
        for variable in self.variables:
            if variable.space in ("global", "const"):
                address = -(-address // max(variable.alignment, 32)) * max(variable.alignment, 32)
                self.tables.append((address, variable))
                self.symbols[variable.name] = address
                address += variable.nbytes + 32
        self.locals: list[tuple[int, Variable]] = []
        self.local_bytes = 0
        for function in functions:
            self._place_locals(function)
        self.entries = {function.name: Entry(self, function) for function in functions if function.is_entry}

    def _place_locals(self, function: Function) -> None:
        """Gives the stack of a function a place of its own, since no function calls itself."""
        for variable in function.variables.values():
            if variable.space == "local":
                size = -(-self.local_bytes // variable.alignment) * variable.alignment
                self.locals.append((size, variable))
                self.local_bytes = size + variable.nbytes

    def reachable(self, entry: Function) -> list[Function]:
        """Returns the functions that a kernel calls, innermost ones first, and the kernel itself last.

        Args:
            entry: the kernel.

        Raises:
            DeviceError: a function calls itself.
        """
        found: list[Function] = []
        self._visit(entry, found, ())
        return found

    def _visit(self, function: Function, found: list[Function], path: tuple[str, ...]) -> None:
        if function.name in path:
            problem = "the function calls itself, which the interpreter of PTX does not do."
            raise user_error(DeviceError, function.name, problem, fix="write it as a loop.")
        for instruction in function.code:
            if instruction.name == "call":
                for name in instruction.operands:
                    if name in self.functions:
                        self._visit(self.functions[name], found, (*path, function.name))
        if function not in found:
            found.append(function)


class Entry:
    """A kernel of a module.

    Args:
        module: the module of the kernel.
        function: the kernel.

    Example:
        >>> entry = PtxModule(".visible .entry nothing(.param .u32 n) { ret; }").entries["nothing"]
        >>> entry.run((1, 1, 1), (32, 1, 1), 0, [5], []).instructions
        32
    """

    def __init__(self, module: PtxModule, function: Function) -> None:
        self._module, self._function = module, function
        self.name = function.name

    @property
    def parameters(self) -> tuple[Type, ...]:
        """The types of the parameters; pointers are integers of 64 bits."""
        return tuple(parameter.kind for parameter in self._function.parameters)

    @property
    def most_threads(self) -> int | None:
        """The threads of a block that the kernel is made for at most, or None."""
        extents = self._function.directives.get("maxntid") or self._function.directives.get("reqntid")
        return None if not extents else int(np.prod(extents))

    @property
    def shared_bytes(self) -> int:
        """The bytes of shared memory that the kernel declares."""
        return self._code.shared_bytes

    @cached_property
    def _code(self) -> _Code:
        return _Code(self._module, self._function)

    def check(self) -> None:
        """Decodes the kernel, which `run` does otherwise.

        Raises:
            DeviceError: an instruction is not known.
        """
        _ = self._code

    def run(
        self, grid: Extent, block: Extent, shared_bytes: int, parameters: Sequence[int | float], regions: Sequence[Region],
        *, most_steps: int = _MOST_STEPS,
    ) -> Counts:  # fmt: skip
        """Runs the kernel and checks each access.

        Args:
            grid: how many blocks, along x, y and z.
            block: how many threads of a block, along x, y and z.
            shared_bytes: shared memory beside the variables of the kernel.
            parameters: addresses and numbers.
            regions: the memory that the kernel may use.
            most_steps: instructions of a wave, before the kernel counts as one that does not end.

        Returns:
            Counts of instructions and of accesses.

        Raises:
            DeviceError: the launch does not fit the kernel, or the kernel made a mistake; the memory then is as before.
        """
        shape = Shape(grid, block, shared_bytes)
        self._check_launch(shape, parameters)
        code = self._code
        memory = GlobalMemory(self.name, [*regions, *code.table_regions()], code.granule)
        counts, executed = Counts(), np.zeros(len(code.ops), np.int64)
        values = self._parameter_bytes(parameters)
        together = max(_WAVE // shape.row, 1)
        for first in range(0, shape.blocks, together):
            blocks = min(together, shape.blocks - first)
            shared = PrivateMemory(
                "shared", blocks, shape.row, code.shared_bytes + shared_bytes, code.granule, code.shared
            )
            local = PrivateMemory("local", blocks * shape.row, 1, self._module.local_bytes, 1, self._module.locals)
            wave = Wave(shape, first, blocks, code.registers, memory, shared, local, dict(values), counts)
            machine = Machine(code.ops, wave, executed, most_steps)
            try:
                machine.run(code.start)
            except Fault as fault:
                self._refuse(fault, machine, wave)
        memory.write_back()
        counts.instructions = int(executed.sum())
        opcodes: Counter[str] = Counter()
        for op, count in zip(code.ops, executed.tolist(), strict=True):
            opcodes[op.opcode] += count
        counts.opcodes = +opcodes
        return counts

    def _check_launch(self, shape: Shape, parameters: Sequence[int | float]) -> None:
        most = min(self.most_threads or _MOST_THREADS, _MOST_THREADS)
        if min(*shape.grid, *shape.block) < 1 or shape.threads > most:
            problem = f"a launch of {shape.grid} blocks of {shape.block} threads."
            raise user_error(DeviceError, self.name, problem, fix=f"launch at least one block of 1 to {most} threads.")
        if len(parameters) != len(self.parameters):
            problem = f"it takes {len(self.parameters)} parameters, and {len(parameters)} are given."
            raise user_error(DeviceError, self.name, problem, fix="pass one value for each.")

        for variable, given in zip(self._function.parameters, parameters, strict=True):
            if int(given) % variable.points:
                problem = f"{variable.name} is {int(given):#x}, and declared as a multiple of {variable.points}."
                fix = "pass an aligned address, or state no more alignment than the operand has."
                raise user_error(DeviceError, self.name, problem, fix=fix)

    def _parameter_bytes(self, parameters: Sequence[int | float]) -> dict[str, tuple[Array, Array]]:
        values = {}
        for variable, given in zip(self._function.parameters, parameters, strict=True):
            if variable.kind.is_float:
                raw = np.array([given]).astype(variable.kind.dtype)
            else:
                raw = np.array([int(given) % (1 << variable.kind.bits)], np.uint64).astype(variable.kind.unsigned)
            stored = np.ascontiguousarray(raw).view(np.uint8).reshape(1, -1)
            values[f"{self.name}:{variable.name}"] = stored, np.ones(stored.shape, bool)
        return values

    def _refuse(self, fault: Fault, machine: Machine, wave: Wave) -> NoReturn:
        op = self._code.ops[machine.at]
        thread = "" if fault.lane is None else f", {wave.name_thread(fault.lane)}"
        fix = f"{fault.fix}."
        raise user_error(DeviceError, self.name, f"`{op.text}` {fault.problem}{thread}.", fix=fix) from fault


class _Code:
    """The decoded instructions of a kernel and of the functions that it calls."""

    def __init__(self, module: PtxModule, entry: Function) -> None:
        functions = module.reachable(entry)
        used = [each for function in functions for each in function.variables.values() if each.space == "shared"]
        of_module = [each for each in module.variables if each.space == "shared"]
        fixed = [each for each in (*of_module, *used) if each.nbytes]
        self.shared, size = lay_out(fixed)
        dynamic = [each for each in (*of_module, *used) if not each.nbytes]
        alignment = max((each.alignment for each in dynamic), default=1)
        self.shared_bytes = -(-size // alignment) * alignment
        symbols = {**module.symbols, **{each.name: at for at, each in (*self.shared, *module.locals)}}
        symbols.update({each.name: self.shared_bytes for each in dynamic})
        starts: dict[str, tuple[int, Function]] = {}
        slots: dict[tuple[str, str], int] = {}
        self.ops: list[Op] = []
        for function in functions:
            starts[function.name] = len(self.ops), function
            self.ops += decode(function, Scope(function, slots, symbols), len(self.ops), starts)
        self.start, self.registers = starts[entry.name][0], len(slots)
        widths = {width_of(each) for function in functions for each in function.code} - {None}
        self.granule = min((width for width in widths if width is not None), default=4)
        self._tables = module.tables

    def table_regions(self) -> list[Region]:
        """Returns the variables of the module as memory, with the values that they have at first."""
        return [
            Region(variable.name, address, _initial(variable), writable=variable.space == "global")
            for address, variable in self._tables
            if variable.nbytes
        ]


def _initial(variable: Variable) -> Array:
    """Returns the bytes that a variable of a module begins with."""
    values = np.zeros(variable.nbytes // variable.kind.nbytes, variable.kind.unsigned)
    given = np.array([value % (1 << variable.kind.bits) for value in variable.values or ()], np.uint64)
    values[: len(given)] = given.astype(values.dtype)
    return values.view(np.uint8)
