"""Writes LLVM's text for one function that a thread of a GPU runs.

A kernel's parameters are pointers. Memory is read and written in vectors of up to 16 bytes, whose alignment the caller proves;
there are no masked accesses, since a branch costs a thread less. Functions of a text share variables of blocks (`shared`), which
stand in front of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nnc.backends.cuda.kernels.functions import FUNCTIONS
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.errors import InternalError
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.writer import memory_type, scalar_type, vector_type

MOST_BYTES = 16  # of one access of a thread
_EVERYBODY = "i32 -1"  # all threads of a warp


class GpuCode(Code):
    """A kernel: the work of one thread.

    Args:
        name: the function's name without @; it begins with KERNEL.
        pointers: the attributes of each parameter, such as "noalias readonly align 16"; parameters are named p0, p1, …
        threads: threads of a block.
        rounds_freely: whether float32 values are 16-bit floats, kept wide within the kernel. Then a product and a sum may be
            fused into one instruction, and quotients may be off by 2 ulp of float32, which 16 bits do not show.
    """

    functions = FUNCTIONS
    keeps_wide = True
    calls = False

    def __init__(self, name: str, pointers: Sequence[str], threads: int, rounds_freely: bool = False) -> None:
        parameters = [(f"ptr {attributes}".rstrip(), f"p{i}") for i, attributes in enumerate(pointers)]
        super().__init__(name, parameters, "void", f'nounwind "nvvm.maxntid"="{threads}"', "ptx_kernel")
        self.variables: list[str] = []
        self._rounds_freely = rounds_freely

    def definition(self) -> str:
        """Returns the function with the variables of its blocks; `declarations` stand apart."""
        return "\n".join([*self.variables, self.text()])

    def module(self) -> str:
        """Returns the function with its variables and the declarations that it needs."""
        return "\n".join([*sorted(self.declarations), self.definition()])

    # -- the thread ----------------------------------------------------------------------------------------------------

    def special(self, register: str) -> Value:
        """Returns a special register as an int64.

        Args:
            register: the register's name, such as "tid.x", "ctaid.y" or "ntid.x".
        """
        name = f"llvm.nvvm.read.ptx.sreg.{register}"
        self.declare(f"declare i32 @{name}()")
        word = Value(self.share(f"call i32 @{name}()"), dtypes.uint32)
        return self.convert(word, dtypes.int64)

    def barrier(self) -> None:
        """Waits for all threads of the block, whose writes are seen from here on."""
        name = "llvm.nvvm.barrier.cta.sync.aligned.all"
        self.declare(f"declare void @{name}(i32)")
        self.line(f"call void @{name}(i32 0)")

    def exchange(self, way: str, x: Value, lane: Value | int) -> Value:
        """Reads the value of another thread of the warp (a shuffle); all threads of the warp must take part.

        Args:
            way: "bfly" reads from the thread whose number differs in the bits of `lane`; "up" and "down" from `lane` threads
                before or behind, where threads without such a neighbour keep their value; "idx" from thread number `lane`.
            x: this thread's value, a scalar.
        """
        size = x.dtype.itemsize
        if dtypes.is_bool(x.dtype):
            return self.convert(self._exchange_word(way, self.convert(x, dtypes.uint32), lane), x.dtype)
        bits = self.bitcast(x, {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}[size])
        if size < 8:
            word = self._exchange_word(way, self.convert(bits, dtypes.uint32), lane)
            return self.bitcast(self.convert(word, bits.dtype), x.dtype)
        low, high = (self.convert(self.shr(bits, self.like(bits, at)), dtypes.uint32) for at in (0, 32))
        low, high = (self.convert(self._exchange_word(way, half, lane), dtypes.uint64) for half in (low, high))
        return self.bitcast(self.or_(low, self.shl(high, self.like(high, 32))), x.dtype)

    def _exchange_word(self, way: str, word: Value, lane: Value | int) -> Value:
        name = f"llvm.nvvm.shfl.sync.{way}.i32"
        self.declare(f"declare i32 @{name}(i32, i32, i32, i32)")
        where = f"i32 {lane}" if isinstance(lane, int) else self.convert(lane, dtypes.int32).typed
        clamp = "i32 0" if way == "up" else "i32 31"
        return Value(self.let(f"call i32 @{name}({_EVERYBODY}, {word.typed}, {where}, {clamp})"), word.dtype)

    # -- arithmetic ----------------------------------------------------------------------------------------------------

    def _binary(self, real: str, integer: str, x: Value, y: Value, unsigned: str | None = None) -> Value:
        joins = self._rounds_freely and x.dtype == dtypes.float32 and real in ("fadd", "fsub", "fmul")
        return super()._binary(f"{real} contract" if joins else real, integer, x, y, unsigned)

    def div(self, x: Value, y: Value) -> Value:
        """x / y; integers are cut off towards 0, and must not be divided by 0."""
        if not self._rounds_freely or x.dtype != dtypes.float32:
            return super().div(x, y)
        x, y = self.match(x, y)
        name = "llvm.nvvm.div.full"
        self.declare(f"declare float @{name}(float, float)")
        pairs = [(self.lane(x, i), self.lane(y, i)) for i in range(x.lanes or 1)]
        found = [Value(self.share(f"call float @{name}({a.typed}, {b.typed})"), x.dtype) for a, b in pairs]
        return self.join(found) if x.lanes else found[0]

    # -- conversions ---------------------------------------------------------------------------------------------------

    def _convert_small(self, x: Value, dtype: DType) -> Value:
        """Converts to and from bfloat16 by the processor's own instructions, which round two numbers at once."""
        if x.dtype == dtypes.bfloat16:
            short = self.let(f"bitcast {x.typed} to {vector_type('bfloat', x.lanes)}")
            wide = f"fpext {vector_type('bfloat', x.lanes)} {short} to {vector_type('float', x.lanes)}"
            return self.convert(Value(self.let(wide), dtypes.float32, x.lanes), dtype)
        if dtype != dtypes.bfloat16:
            return super()._convert_small(x, dtype)
        x = self.convert(self._round_to_odd(x) if x.dtype == dtypes.float64 else x, dtypes.float32)
        if not x.lanes or x.lanes % 2:
            kind = vector_type("bfloat", x.lanes)
            short = self.let(f"fptrunc {x.typed} to {kind}")
            return Value(self.let(f"bitcast {kind} {short} to {vector_type('i16', x.lanes)}"), dtype, x.lanes)
        name = "llvm.nvvm.ff2bf16x2.rn"
        self.declare(f"declare <2 x bfloat> @{name}(float, float)")
        rounded = [
            self.share(f"call <2 x bfloat> @{name}({high.typed}, {low.typed})")
            for low, high in ((self.lane(x, i), self.lane(x, i + 1)) for i in range(0, x.lanes, 2))
        ]
        pairs = [Value(self.let(f"bitcast <2 x bfloat> {pair} to <2 x i16>"), dtype, 2) for pair in rounded]
        while len(pairs) > 1:  # lanes are 2, 4, 8 …
            count = 2 * pairs[0].lanes
            pairs = [self.shuffle(a, range(count), b) for a, b in zip(pairs[::2], pairs[1::2], strict=True)]
        return pairs[0]

    # -- memory --------------------------------------------------------------------------------------------------------

    def shared(self, nbytes: int) -> str:
        """Returns a pointer to a variable of the block, 16-byte aligned."""
        name = f"@{self.name}.shared{len(self.variables)}"
        self.variables.append(f"{name} = internal addrspace(3) global [{nbytes} x i8] undef, align {MOST_BYTES}")
        return self.share(f"addrspacecast ptr addrspace(3) {name} to ptr")

    def load(
        self, pointer: str, dtype: DType, lanes: int = 0, mask: Value | None = None, align: int | None = None
    ) -> Value:
        """Reads neighbouring values.

        Args:
            dtype: the dtype of the values.
            lanes: the number of values; 0: a scalar.
            mask: must be None; threads take no masks.
            align: bytes that divide the address; None: the dtype's size.
        """
        if mask is not None:
            raise InternalError("kernels of devices branch instead of masking")
        kind = vector_type(memory_type(dtype), lanes)
        text = self.let(f"load {kind}, ptr {pointer}, align {align or dtype.itemsize}")
        return self._from_memory(text, dtype, lanes)

    def store(self, pointer: str, value: Value, mask: Value | None = None, align: int | None = None) -> None:
        """Writes neighbouring values.

        Args:
            value: a scalar or a vector.
            mask: must be None; threads take no masks.
            align: bytes that divide the address; None: the dtype's size.
        """
        if mask is not None:
            raise InternalError("kernels of devices branch instead of masking")
        value = self._to_memory(value)
        self.line(f"store {value.typed}, ptr {pointer}, align {align or value.dtype.itemsize}")

    def guarded(self, condition: Value, load: Callable[[], Value]) -> Value:
        """Reads where a condition holds; elsewhere the value is 0."""
        before = self.block
        with self.when(condition):
            found = load()
            inside = self.block
        name, zero = self.fresh(), self.like(found, 0)
        self.line(f"{name} = phi {found.type} [{found.text}, %{inside}], [{zero.text}, %{before}]")
        return Value(name, found.dtype, found.lanes)

    def lane(self, x: Value, number: int) -> Value:
        """One lane of a value; a scalar is its own."""
        if not x.lanes:
            return x
        return Value(self.share(f"extractelement {x.typed}, i64 {number}"), x.dtype)

    def join(self, lanes: Sequence[Value]) -> Value:
        """Scalars as the lanes of one value."""
        dtype, count = lanes[0].dtype, len(lanes)
        kind, text = vector_type(scalar_type(dtype), count), "poison"
        for i, x in enumerate(lanes):
            text = self.share(f"insertelement {kind} {text}, {x.typed}, i64 {i}")
        return Value(text, dtype, count)

    def refuse(self, status: str, condition: Value) -> None:
        """Sets the status word where a condition holds."""
        with self.when(condition):
            self.line(f"%{self.fresh()[1:]} = atomicrmw umax ptr {status}, i32 1 monotonic")
