"""Writes LLVM's text: one function at a time, instruction by instruction, on scalars or short vectors.

Values know their dtype, so that one method serves all: `add` is an `fadd` or an `add`, `less` knows signs. Kernels are vectorised
here rather than by LLVM: a value has `lanes`, 0 for a scalar. Iterations hand on values that are `Carried`, or that lie on the
stack at first.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from operator import eq, ge, gt, le, lt, ne
from types import MappingProxyType
from typing import Any, NamedTuple

from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.errors import InternalError
from nnc.lower.kernels.sizes import reserved
from nnc.lower.kernels.writer import TYPES, FunctionWriter, literal, memory_type, scalar_type, vector_type

_INT_PREDICATES = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_FLOAT_PREDICATES = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "uno": "uno"}
_HOLDS = {"eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge}
_BOOLS = {"true": True, "false": False}
_FLOAT, _INTEGER = re.compile(r"0x[0-9A-F]{16}"), re.compile(r"-?\d+")

POINTER = "ptr"


def has_code(dtype: DType) -> bool:
    """Whether values of a dtype can be computed with in printed kernels (all but complex numbers and tapes)."""
    return dtype in TYPES


class Value(NamedTuple):
    """A value in a register, or a constant: how it is written, its dtype, and its lanes (0: a scalar)."""

    text: str
    dtype: DType
    lanes: int = 0

    @property
    def type(self) -> str:
        """The LLVM type of the value."""
        _, dtype, lanes = self
        return f"<{lanes} x {TYPES[dtype]}>" if lanes else TYPES[dtype]

    @property
    def typed(self) -> str:
        """Type and name, as operands are written."""
        text, dtype, lanes = self
        return f"<{lanes} x {TYPES[dtype]}> {text}" if lanes else f"{TYPES[dtype]} {text}"


@dataclass(slots=True)
class Carried:
    """Values that a loop carries: before the loop the initial ones, in an iteration the present ones, which it replaces by
    those of the next iteration, behind the loop the final ones.
    """

    values: list[Value]


def _hand_on(carried: Sequence[Carried], values: Sequence[Value]) -> None:
    at = iter(values)
    for each in carried:
        each.values = [next(at) for _ in each.values]


class Code(FunctionWriter):
    """One function that is being printed: instructions on values.

    Attributes:
        functions: the target's own functions, by their names in scalar expressions; they map Terms to Terms, and come before
            the common ones (nnc.lower.kernels.math.table).
        keeps_wide: whether 16-bit floats stay float32 from one command to the next, until they are stored.
    """

    functions: Mapping[str, Callable[..., Any]] = MappingProxyType({})
    keeps_wide = False

    @cached_property
    def _casts(self) -> dict[str, Value]:
        """Values that have the bits of registers."""
        return {}

    # -- control flow --------------------------------------------------------------------------------------------------

    def branch(self, condition: Value, yes: str, no: str) -> None:
        """Prints a branch to one of two blocks."""
        self.line(f"br i1 {condition.text}, label %{yes}, label %{no}")

    def ret(self, value: Value | None = None) -> None:
        """Prints a return."""
        self.line(f"ret {value.typed}" if value is not None else "ret void")

    @contextmanager
    def loop(
        self, first: Value | int, end: Value | int, step: int = 1, carried: Sequence[Carried] = ()
    ) -> Iterator[Value]:
        """Prints a loop around the block, for i = first, first + step, … while i < end; yields i, an int64. `carried` are the
        values that iterations hand on.
        """
        start, stop = self.integer(first), self.integer(end)
        if isinstance(first, int) and isinstance(end, int) and len(range(first, end, step)) == 1:
            yield start
            return
        runs = not isinstance(first, Value) and not isinstance(end, Value) and first < end
        early = self.in_front()
        body, done = self.label("body"), self.label("done")
        # where the loop is known to run, the test only stands behind an iteration
        top = body if runs else self.label("test")
        starts = [start, *(value for each in carried for value in each.values)]
        with self.scope(early):
            before = self._block
            self.jump(top)
            self.place(top, always=runs)
            phis = self.in_front()
            here = [self._fresh_like(value) for value in starts]
            _hand_on(carried, here[1:])
            i = here[0]
            if not runs:
                self.branch(self.compare("lt", i, stop), body, done)
                self.place(body, always=True)
            yield i
            following = [self.add(i, self.integer(step)), *(value for each in carried for value in each.values)]
            for x, old, new in zip(here, starts, following, strict=True):
                phis.append(f"  {x.text} = phi {x.type} [{old.text}, %{before}], [{new.text}, %{self._block}]")
            if runs:
                self.branch(self.compare("lt", following[0], stop), body, done)
            else:
                self.jump(top)
        self.place(done, always=True)
        left = following if runs else here
        _hand_on(carried, left[1:])
        for value in left[1:]:  # the registers are known from here on
            self._level[value.text] = len(self._scopes) - 1

    def _fresh_like(self, value: Value) -> Value:
        """Returns a register of the same type, known in the present scope."""
        name = self.fresh()
        self._level[name] = len(self._scopes) - 1
        return Value(name, value.dtype, value.lanes)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Prints the block under the condition that a bool holds."""
        yes, after = self.label("then"), self.label("after")
        self.branch(condition, yes, after)
        with self.scope():
            self.place(yes, always=True)
            yield
            self.jump(after)
        self.place(after, always=True)

    # -- stack slots ---------------------------------------------------------------------------------------------------

    def slot(self, value: Value) -> Slot:
        """Returns a variable on the stack, which holds `value` from here on."""
        name = self.fresh()
        self._slots.append(f"  {name} = alloca {value.type}, align 64")
        slot = Slot(name, value.dtype, value.lanes)
        self.write(slot, value)
        return slot

    def room(self, nbytes: int) -> str:
        """Returns a pointer to memory on the stack, 64-byte aligned."""
        name = self.fresh()
        self._slots.append(f"  {name} = alloca i8, i64 {max(reserved(nbytes), 1)}, align 64")
        return name

    def read(self, slot: Slot) -> Value:
        """Loads the value of a variable."""
        kind = vector_type(scalar_type(slot.dtype), slot.lanes)
        return Value(self.let(f"load {kind}, ptr {slot.name}"), slot.dtype, slot.lanes)

    def write(self, slot: Slot, value: Value) -> None:
        """Sets a variable."""
        self.line(f"store {value.typed}, ptr {slot.name}")

    # -- constants -----------------------------------------------------------------------------------------------------

    def constant(self, value: Any, dtype: DType, lanes: int = 0) -> Value:
        """Returns a number."""
        text = literal(value, dtype)
        return Value(f"splat ({scalar_type(dtype)} {text})" if lanes else text, dtype, lanes)

    def like(self, x: Value, value: Any) -> Value:
        """Returns a number of the dtype and lanes of `x`."""
        return self.constant(value, x.dtype, x.lanes)

    def integer(self, value: Value | int) -> Value:
        """Returns an int64."""
        return value if isinstance(value, Value) else Value(str(value), dtypes.int64)

    def splat(self, x: Value, lanes: int) -> Value:
        """Spreads a scalar to all lanes; a value with lanes stays."""
        if x.lanes == lanes:
            return x
        if x.lanes:
            raise InternalError(f"a value of {x.lanes} lanes cannot be spread to {lanes}")
        if not x.text.startswith("%"):
            return Value(f"splat ({x.typed})", x.dtype, lanes)
        kind = vector_type(scalar_type(x.dtype), lanes)
        one = self.share(f"insertelement {kind} poison, {x.typed}, i64 0")
        text = self.share(f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer")
        return Value(text, x.dtype, lanes)

    def shuffle(self, x: Value, order: Sequence[int], other: Value | None = None) -> Value:
        """Lanes of x, and of `other` (numbered on), in a new order."""
        lanes, right = ", ".join([f"i32 {lane}" for lane in order]), "poison" if other is None else other.text
        text = self.let(f"shufflevector {x.typed}, {x.type} {right}, <{len(order)} x i32> <{lanes}>")
        return Value(text, x.dtype, len(order))

    def match(self, *values: Value) -> list[Value]:
        """Returns the values, all with as many lanes as the widest."""
        lanes = max([value.lanes for value in values])
        return [value if value.lanes == lanes else self.splat(value, lanes) for value in values]

    # -- arithmetic ----------------------------------------------------------------------------------------------------

    def _binary(self, real: str, integer: str, x: Value, y: Value, unsigned: str | None = None) -> Value:
        if x.lanes != y.lanes:
            x, y = self.match(x, y)
        if x.dtype != y.dtype:
            raise InternalError(f"operands of dtype {x.dtype.name} and {y.dtype.name}")
        if x.dtype == dtypes.bfloat16 and real:
            x, y = self.convert(x, dtypes.float32), self.convert(y, dtypes.float32)
            return self.convert(self._binary(real, integer, x, y), dtypes.bfloat16)
        name = real if dtypes.is_float(x.dtype) else integer
        if unsigned is not None and dtypes.is_integer(x.dtype) and x.dtype in dtypes.UNSIGNED:
            name = unsigned
        if not name:
            raise InternalError(f"no such operation for {x.dtype.name}")
        return Value(self.let(f"{name} {x.type} {x.text}, {y.text}"), x.dtype, x.lanes)

    def add(self, x: Value, y: Value) -> Value:
        """x + y."""
        if x.dtype == y.dtype == dtypes.int64 and not x.lanes and not y.lanes:
            (a, m), (b, n) = self._parts(x), self._parts(y)
            both = self.share(f"add i64 {a}, {b}") if a and b else a or b
            return self._sum(both, m + n)
        return self._binary("fadd", "add", x, y)

    def sub(self, x: Value, y: Value) -> Value:
        """x - y."""
        n = known_integer(y)
        return self.add(x, self.integer(-n)) if n is not None else self._binary("fsub", "sub", x, y)

    def mul(self, x: Value, y: Value) -> Value:
        """x · y."""
        n = known_integer(y)
        if n is not None and x.dtype == dtypes.int64 and not x.lanes:
            a, m = self._parts(x)
            product = a if n == 1 or not a else self.share(f"mul i64 {a}, {n}") if n else ""
            return self._sum(product, m * n)
        return self._binary("fmul", "mul", x, y)

    def _parts(self, x: Value) -> tuple[str, int]:
        """Returns an int64 as a register ("": none) and a number that is added to it."""
        n = known_integer(x)
        return ("", n) if n is not None else self._sums.get(x.text, (x.text, 0))

    def _sum(self, register: str, number: int) -> Value:
        number = (number + (1 << 63)) % (1 << 64) - (1 << 63)
        if not register or not number:
            return Value(register or str(number), dtypes.int64)
        name = self.share(f"add i64 {register}, {number}")
        self._sums[name] = register, number
        return Value(name, dtypes.int64)

    def div(self, x: Value, y: Value) -> Value:
        """x / y; integers are cut off towards 0, and must not be divided by 0."""
        n = known_integer(y)
        if n == 1:
            return x
        return self._binary("fdiv", "sdiv", x, y, "udiv")

    def rem(self, x: Value, y: Value) -> Value:
        """Returns the remainder of integers after `div`."""
        n = known_integer(y)
        if n == 1:
            return self.integer(0)
        return self._binary("", "srem", x, y, "urem")

    def neg(self, x: Value) -> Value:
        """-x."""
        if x.dtype == dtypes.bfloat16:
            bits = self.bitcast(x, dtypes.uint16)
            return self.bitcast(self.xor(bits, self.like(bits, 0x8000)), x.dtype)
        if dtypes.is_float(x.dtype):
            return Value(self.let(f"fneg {x.typed}"), x.dtype, x.lanes)
        return self.sub(self.like(x, 0), x)

    def and_(self, x: Value, y: Value) -> Value:
        """Bits that both have; of bools, both."""
        for a, b in ((x, y), (y, x)):
            if dtypes.is_bool(a.dtype) and known_number(a) is not None and a.lanes <= b.lanes:
                return b if known_number(a) else self.like(b, False)
        return self._binary("", "and", x, y)

    def or_(self, x: Value, y: Value) -> Value:
        """Bits that one has."""
        for a, b in ((x, y), (y, x)):
            if dtypes.is_bool(a.dtype) and known_number(a) is not None and a.lanes <= b.lanes:
                return self.like(b, True) if known_number(a) else b
        return self._binary("", "or", x, y)

    def xor(self, x: Value, y: Value) -> Value:
        """Bits that differ."""
        return self._binary("", "xor", x, y)

    def not_(self, x: Value) -> Value:
        """Returns all bits turned."""
        return self.xor(x, self.like(x, 1 if dtypes.is_bool(x.dtype) else -1))

    def shl(self, x: Value, y: Value) -> Value:
        """x shifted to the left by fewer bits than it has."""
        return self._binary("", "shl", x, y)

    def shr(self, x: Value, y: Value) -> Value:
        """x shifted to the right; the sign comes in at the left where there is one."""
        return self._binary("", "ashr", x, y, "lshr")

    def intrinsic(self, name: str, *values: Value) -> Value:
        """Calls an LLVM intrinsic that is named after the type of its first operand and returns that type: `intrinsic("sqrt",
        x)`.
        """
        matched = self.match(*values)
        if matched[0].dtype == dtypes.bfloat16:
            wide = [self.convert(value, dtypes.float32) for value in matched]
            return self.convert(self.intrinsic(name, *wide), dtypes.bfloat16)
        x, kinds = matched[0], tuple([value.type for value in matched])
        if name in ("smin", "smax"):
            known = [n for value in matched if (n := known_integer(value)) is not None]
            if len(known) == len(matched):
                return self.integer(min(known) if name == "smin" else max(known))
        full, declaration = _intrinsic(name, kinds)
        self.declare(declaration)
        operands = ", ".join([f"{kind} {value.text}" for kind, value in zip(kinds, matched, strict=True)])
        return Value(self.share(f"call {kinds[0]} @{full}({operands})"), x.dtype, x.lanes)

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """x · y + z, rounded once."""
        return self.intrinsic("fma", x, y, z)

    def compare(self, predicate: str, x: Value, y: Value) -> Value:
        """Returns a bool. `predicate`: "eq", "ne" (true for NaN), "lt", "le", "gt", "ge"; for floats also "uno" (one is NaN)."""
        if x.lanes != y.lanes:
            x, y = self.match(x, y)
        if x.dtype == dtypes.bfloat16:
            x, y = self.convert(x, dtypes.float32), self.convert(y, dtypes.float32)
        a, b = known_number(x), known_number(y)
        if a is not None and b is not None and predicate in _HOLDS:
            return self.constant(_HOLDS[predicate](a, b), dtypes.bool_, x.lanes)
        if dtypes.is_float(x.dtype):
            text = self.share(f"fcmp {_FLOAT_PREDICATES[predicate]} {x.type} {x.text}, {y.text}")
        else:
            name = _INT_PREDICATES[predicate]
            if name not in ("eq", "ne"):
                name = ("u" if x.dtype in dtypes.UNSIGNED or dtypes.is_bool(x.dtype) else "s") + name
            text = self.share(f"icmp {name} {x.type} {x.text}, {y.text}")
        return Value(text, dtypes.bool_, x.lanes)

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        """x where the condition holds, else y."""
        condition, x, y = self.match(condition, x, y)
        known = known_number(condition)
        if known is not None:  # so that LLVM sees constant divisors, which it does within a block alone
            return x if known else y
        return Value(self.share(f"select {condition.typed}, {x.typed}, {y.typed}"), x.dtype, x.lanes)

    # -- conversions ---------------------------------------------------------------------------------------------------

    def bitcast(self, x: Value, dtype: DType) -> Value:
        """Returns the same bits as another dtype of that size."""
        kind = vector_type(scalar_type(dtype), x.lanes)
        source = self._casts.get(x.text, x)
        if kind == source.type:
            return Value(source.text, dtype, x.lanes)
        name = self.let(f"bitcast {source.typed} to {kind}")
        self._casts[name] = source
        return Value(name, dtype, x.lanes)

    def convert(self, x: Value, dtype: DType) -> Value:
        """Returns the value in another dtype. Floats become integers by the rule of nnc/base/casting.py."""
        if x.dtype == dtype:
            return x
        if dtypes.is_bool(dtype):
            return self.compare("ne", x, self.like(x, 0))
        small = (dtypes.float16, dtypes.bfloat16)
        if x.dtype in small or dtype in small:
            return self._convert_small(x, dtype)
        kind = vector_type(scalar_type(dtype), x.lanes)
        unsigned = x.dtype in dtypes.UNSIGNED or dtypes.is_bool(x.dtype)
        if dtypes.is_float(x.dtype) and dtypes.is_float(dtype):
            name = "fpext" if x.dtype.itemsize < dtype.itemsize else "fptrunc"
        elif dtypes.is_float(x.dtype):
            return self._saturated(x, dtype)
        elif dtypes.is_float(dtype):
            name = "uitofp" if unsigned else "sitofp"
        elif dtypes.is_bool(x.dtype) or dtype.itemsize > x.dtype.itemsize:
            name = "zext" if unsigned else "sext"
        elif dtype.itemsize < x.dtype.itemsize:
            name = "trunc"
        else:
            return Value(x.text, dtype, x.lanes)
        return Value(self.let(f"{name} {x.typed} to {kind}"), dtype, x.lanes)

    def _convert_small(self, x: Value, dtype: DType) -> Value:
        """To and from 16-bit floats through float32, which processors convert; bfloat16 by its bits, as some flush small ones."""
        if x.dtype == dtypes.float16:
            kind = vector_type("float", x.lanes)
            return self.convert(Value(self.let(f"fpext {x.typed} to {kind}"), dtypes.float32, x.lanes), dtype)
        if x.dtype == dtypes.bfloat16:
            bits = self.convert(self.bitcast(x, dtypes.uint16), dtypes.uint32)
            return self.convert(self.bitcast(self.shl(bits, self.like(bits, 16)), dtypes.float32), dtype)
        if dtype == dtypes.float16 and x.dtype == dtypes.float64:
            x = self._round_to_odd(x)
        x = self.convert(x, dtypes.float32)
        if dtype == dtypes.float16:
            return Value(self.let(f"fptrunc {x.typed} to {vector_type('half', x.lanes)}"), dtype, x.lanes)
        bits = self.bitcast(x, dtypes.uint32)
        even = self.and_(self.shr(bits, self.like(bits, 16)), self.like(bits, 1))
        rounded = self.add(bits, self.add(even, self.like(bits, 0x7FFF)))
        quiet = self.or_(bits, self.like(bits, 0x400000))
        top = self.select(self.compare("uno", x, x), quiet, rounded)
        return self.bitcast(self.convert(self.shr(top, self.like(top, 16)), dtypes.uint16), dtype)

    def _round_to_odd(self, x: Value) -> Value:
        """Returns a float64 as float32, cut off; with the last bit set where that is inexact: then a second rounding is as if
        the first.
        """
        bits = self.bitcast(x, dtypes.uint64)
        lost = self.compare("ne", self.and_(bits, self.like(bits, (1 << 29) - 1)), self.like(bits, 0))
        kept = self.and_(bits, self.like(bits, ~((1 << 29) - 1) & ((1 << 64) - 1)))
        odd = self.or_(kept, self.shl(self.convert(lost, dtypes.uint64), self.like(bits, 29)))
        return self.convert(self.bitcast(odd, dtypes.float64), dtypes.float32)

    def _saturated(self, x: Value, dtype: DType) -> Value:
        """Returns a float as the nearest integer towards 0 that the dtype has; 0 for NaN."""
        name = "fptoui.sat" if dtype in dtypes.UNSIGNED else "fptosi.sat"
        out, prefix = vector_type(scalar_type(dtype), x.lanes), f"v{x.lanes}" if x.lanes else ""
        full = f"llvm.{name}.{prefix}{scalar_type(dtype)}.{prefix}{_short(scalar_type(x.dtype))}"
        self.declare(f"declare {out} @{full}({x.type})")
        return Value(self.share(f"call {out} @{full}({x.typed})"), dtype, x.lanes)

    # -- memory --------------------------------------------------------------------------------------------------------

    def offset(self, pointer: str, nbytes: Value | int) -> str:
        """Returns a pointer so many bytes further. Known distances come last, since instructions reach that far by themselves."""
        register, far = ("", nbytes) if isinstance(nbytes, int) else self._parts(self.integer(nbytes))
        pointer, more = self._places.get(pointer, (pointer, 0))
        if register:
            pointer = self.share(f"getelementptr i8, ptr {pointer}, i64 {register}")
        far += more
        if not far:
            return pointer
        name = self.share(f"getelementptr i8, ptr {pointer}, i64 {far}")
        self._places[name] = pointer, far
        return name

    def load(self, pointer: str, dtype: DType, lanes: int = 0, mask: Value | None = None) -> Value:
        """Reads neighbouring values at a pointer, which needs no alignment but the dtype's; masked lanes are 0."""
        memory = memory_type(dtype)
        kind = vector_type(memory, lanes)
        if mask is None:
            text = self.let(f"load {kind}, ptr {pointer}, align {dtype.itemsize}")
        else:
            full = f"llvm.masked.load.v{lanes}{_short(memory)}.p0"
            self.declare(f"declare {kind} @{full}(ptr, <{lanes} x i1>, {kind})")
            text = self.let(
                f"call {kind} @{full}(ptr align {dtype.itemsize} {pointer}, {mask.typed}, {kind} zeroinitializer)"
            )
        return self._from_memory(text, dtype, lanes)

    def gather(self, pointer: str, strides: Value, dtype: DType, mask: Value | None = None) -> Value:
        """Reads values that lie `strides` (bytes, int64 lanes) from a pointer."""
        lanes, memory = strides.lanes, memory_type(dtype)
        kind = vector_type(memory, lanes)
        pointers = self.let(f"getelementptr i8, ptr {pointer}, {strides.typed}")
        full = f"llvm.masked.gather.v{lanes}{_short(memory)}.v{lanes}p0"
        self.declare(f"declare {kind} @{full}(<{lanes} x ptr>, <{lanes} x i1>, {kind})")
        on = mask.text if mask is not None else "splat (i1 true)"
        where = f"<{lanes} x ptr> align {dtype.itemsize} {pointers}"
        call = f"call {kind} @{full}({where}, <{lanes} x i1> {on}, {kind} zeroinitializer)"
        return self._from_memory(self.let(call), dtype, lanes)

    def _from_memory(self, text: str, dtype: DType, lanes: int) -> Value:
        if dtypes.is_bool(dtype):
            byte = Value(text, dtypes.uint8, lanes)
            return self.compare("ne", byte, self.like(byte, 0))
        return Value(text, dtype, lanes)

    def store(self, pointer: str, value: Value, mask: Value | None = None) -> None:
        """Writes neighbouring values at a pointer."""
        value = self._to_memory(value)
        size = value.dtype.itemsize
        if mask is not None and mask.text.startswith("<") and mask.text.count("true") == 1:
            # LLVM 22 forgets that such a store cuts numbers off: a bfloat16 made of 32 bits would take 4 bytes.
            lane = next(i for i, bit in enumerate(mask.text.split(", ")) if "true" in bit)
            one = Value(self.let(f"extractelement {value.typed}, i64 {lane}"), value.dtype)
            self.store(self.offset(pointer, lane * size), one)
        elif mask is None:
            self.line(f"store {value.typed}, ptr {pointer}, align {size}")
        else:
            full = f"llvm.masked.store.v{value.lanes}{_short(scalar_type(value.dtype))}.p0"
            self.declare(f"declare void @{full}({value.type}, ptr, <{value.lanes} x i1>)")
            self.line(f"call void @{full}({value.typed}, ptr align {size} {pointer}, {mask.typed})")

    def scatter(self, pointer: str, strides: Value, value: Value, mask: Value | None = None) -> None:
        """Writes values that lie `strides` (bytes, int64 lanes) from a pointer."""
        value = self._to_memory(value)
        lanes = value.lanes
        pointers = self.let(f"getelementptr i8, ptr {pointer}, {strides.typed}")
        full = f"llvm.masked.scatter.v{lanes}{_short(scalar_type(value.dtype))}.v{lanes}p0"
        self.declare(f"declare void @{full}({value.type}, <{lanes} x ptr>, <{lanes} x i1>)")
        on = mask.text if mask is not None else "splat (i1 true)"
        self.line(
            f"call void @{full}({value.typed}, <{lanes} x ptr> align {value.dtype.itemsize} {pointers}, <{lanes} x i1> {on})"
        )

    def _to_memory(self, value: Value) -> Value:
        return self.convert(value, dtypes.uint8) if dtypes.is_bool(value.dtype) else value

    def reduce(self, name: str, x: Value, start: Value | None = None) -> Value:
        """Returns all lanes in one: "fadd", "fmul" (with `start`; lanes in any order), "add", "mul", "and", "or", "xor", "smin",
        "smax".
        """
        short = {"float": "f32", "double": "f64"}.get(scalar_type(x.dtype), scalar_type(x.dtype))
        full = f"llvm.vector.reduce.{name}.v{x.lanes}{short}"
        kind = scalar_type(x.dtype)
        if start is None:
            self.declare(f"declare {kind} @{full}({x.type})")
            return Value(self.share(f"call {kind} @{full}({x.typed})"), x.dtype)
        self.declare(f"declare {kind} @{full}({kind}, {x.type})")
        return Value(self.share(f"call reassoc {kind} @{full}({start.typed}, {x.typed})"), x.dtype)


@cache
def _intrinsic(name: str, kinds: tuple[str, ...]) -> tuple[str, str]:
    """Returns the full name of an intrinsic on operands of such types, and its declaration."""
    *lanes, scalar = kinds[0].strip("<>").split(" x ")
    full = f"llvm.{name}.{''.join(f'v{n}' for n in lanes)}{_short(scalar)}"
    return full, f"declare {kinds[0]} @{full}({', '.join(kinds)})"


def known_number(x: Value) -> float | None:
    """Returns the number that a constant value has; None where it is not known, or its dtype has 16 bits."""
    text = x.text
    if text.startswith("%"):
        return None
    if x.dtype == dtypes.bfloat16:
        return None
    if x.lanes:
        text = text.removeprefix(f"splat ({scalar_type(x.dtype)} ").removesuffix(")")
    if text in _BOOLS:
        return _BOOLS[text]
    if _FLOAT.fullmatch(text):
        number: float = struct.unpack("<d", int(text, 16).to_bytes(8, "little"))[0]
        return number
    if not _INTEGER.fullmatch(text):
        return None
    bits = 8 * x.dtype.itemsize  # a constant whose bits were taken for another dtype keeps its text
    without_sign = int(text) % (1 << bits)
    is_negative = x.dtype in dtypes.SIGNED and without_sign >> (bits - 1)
    return without_sign - (1 << bits) if is_negative else without_sign


def known_integer(x: Value) -> int | None:
    """Returns a known int64."""
    text, dtype, lanes = x
    return int(text) if not lanes and text[0] != "%" and dtype == dtypes.int64 else None


class Slot(NamedTuple):
    """A variable on the stack."""

    name: str
    dtype: DType
    lanes: int = 0


def _short(memory: str) -> str:
    return {"float": "f32", "double": "f64", "half": "f16"}.get(memory, memory)
