"""oneDNN through its C interface: the shared library, and the few of its objects that kernels are made of.

The library comes in the wheel `onednn-cpu-gomp` and is found through that distribution's list of files. A kernel describes its
tensors (`MemoryDesc`) and an operation on them (`PrimitiveDesc`); `calls.py` runs primitives from compiled code. Every object is
released when nothing in Python holds it any more.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import sys
import warnings
import weakref
from collections.abc import Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from nnc.backends.native_runs import cpu_compiler
from nnc.backends.onednn.interpose import can_interpose, imported, interpose
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.fork import fork_waits
from nnc.base.machine import address_of, files_of, usable_threads
from nnc.base.options import ONEDNN, library_cap
from nnc.commands.pack import Blocks
from nnc.errors import BackendError

DISTRIBUTION = "onednn-cpu-gomp"

DATA_TYPES: Mapping[DType, int] = MappingProxyType({dtypes.float16: 1, dtypes.bfloat16: 2, dtypes.float32: 3})
ANY_LAYOUT = 1  # the tag by which a primitive chooses the layout itself

# Roles of tensors in a primitive (DNNL_ARG_…).
SRC, SRC_1, DST, WEIGHTS, SCRATCHPAD = 1, 2, 17, 33, 80
DIFF_SRC, DIFF_DST, DIFF_WEIGHTS = 129, 145, 161
_POST_OP = 32768

# Questions to a primitive descriptor about its tensors (dnnl_query_…_md).
QUERIES: Mapping[int, int] = MappingProxyType(
    {SRC: 129, DIFF_SRC: 130, WEIGHTS: 131, DIFF_WEIGHTS: 132, DST: 133, DIFF_DST: 134, SCRATCHPAD: 136}
)
_QUERY_IMPLEMENTATION = 8
# Questions to a memory descriptor (dnnl_query_…): numbers, and lists of numbers.
_NDIMS, _FORMAT_KIND, _BLOCK_COUNT = 256, 262, 263
_STRIDES, _DIMS_OF, _BLOCK_SIZES, _BLOCK_AXES = 14, 257, 264, 265
_BLOCKED = 2  # the kind of formats that strides and blocks describe

# Functions of OpenMP that oneDNN calls in a primitive that nnc does not use.
_OF_SHUFFLES = frozenset(("GOMP_loop_static_start", "GOMP_loop_static_next", "GOMP_loop_end_nowait"))

# Instructions by the names that ONEDNN_MAX_CPU_ISA takes (dnnl_cpu_isa_…): bits, which a processor with more instructions has, too.
_INSTRUCTIONS: Mapping[str, int] = MappingProxyType({
    "SSE41": 0x1, "AVX": 0x3, "AVX2": 0x7, "AVX2_VNNI": 0xF, "AVX2_VNNI_2": 0x1F, "AVX512_CORE": 0x27,
    "AVX512_CORE_VNNI": 0x67, "AVX512_CORE_BF16": 0xE7, "AVX512_CORE_FP16": 0x1EF, "AVX512_CORE_AMX": 0xFEF,
    "AVX512_CORE_AMX_FP16": 0x1FEF, "AVX10_2": 0x201FF, "AVX10_2_AMX_2": 0x22FFF,
})  # fmt: skip
FORWARD_TRAINING = 64
CONVOLUTION_DIRECT = 0x1

ELTWISE: Mapping[str, int] = MappingProxyType({"square": 0x23, "abs": 0x24, "sqrt": 0x25})
BINARY: Mapping[str, int] = MappingProxyType({"add": 0x1FFF0, "mul": 0x1FFF1, "div": 0x1FFF4, "sub": 0x1FFF5})
_DESCS = 1024  # of each kind that are remembered
_HANDLES = POINTER(c_void_p)
_DIMS = POINTER(c_int64)
_BY_NAME = "dnnl_memory_desc_create_with_string_tag"  # in no header: a library may lack it
_SIGNATURES: Mapping[str, tuple[Any, ...]] = MappingProxyType({
    "dnnl_set_primitive_cache_capacity": (c_int,),
    "dnnl_set_max_cpu_isa": (c_int,),
    "dnnl_get_effective_cpu_isa": (),
    "dnnl_engine_create": (_HANDLES, c_int, c_size_t),
    "dnnl_stream_create": (_HANDLES, c_void_p, c_uint),
    "dnnl_memory_desc_create_with_strides": (_HANDLES, c_int, _DIMS, c_int, _DIMS),
    "dnnl_memory_desc_create_with_tag": (_HANDLES, c_int, _DIMS, c_int, c_int),
    "dnnl_memory_desc_clone": (_HANDLES, c_void_p),
    "dnnl_memory_desc_query": (c_void_p, c_int, c_void_p),
    "dnnl_memory_create": (_HANDLES, c_void_p, c_void_p, c_void_p),
    "dnnl_memory_set_data_handle": (c_void_p, c_void_p),
    "dnnl_primitive_create": (_HANDLES, c_void_p),
    "dnnl_primitive_execute": (c_void_p, c_void_p, c_int, c_void_p),
    "dnnl_primitive_desc_query": (c_void_p, c_int, c_int, c_void_p),
    "dnnl_primitive_desc_next_impl": (c_void_p,),
    "dnnl_primitive_attr_create": (_HANDLES,),
    "dnnl_primitive_attr_set_scratchpad_mode": (c_void_p, c_int),
    "dnnl_primitive_attr_set_post_ops": (c_void_p, c_void_p),
    "dnnl_post_ops_create": (_HANDLES,),
    "dnnl_post_ops_append_eltwise": (c_void_p, c_int, c_float, c_float),
    "dnnl_post_ops_append_binary": (c_void_p, c_int, c_void_p),
    "dnnl_matmul_primitive_desc_create": (_HANDLES, *[c_void_p] * 6),
    "dnnl_reorder_primitive_desc_create": (_HANDLES, *[c_void_p] * 5),
    "dnnl_convolution_forward_primitive_desc_create":
        (_HANDLES, c_void_p, c_int, c_int, *[c_void_p] * 4, *[_DIMS] * 4, c_void_p),
    "dnnl_convolution_backward_data_primitive_desc_create":
        (_HANDLES, c_void_p, c_int, *[c_void_p] * 3, *[_DIMS] * 4, c_void_p, c_void_p),
    "dnnl_convolution_backward_weights_primitive_desc_create":
        (_HANDLES, c_void_p, c_int, *[c_void_p] * 4, *[_DIMS] * 4, c_void_p, c_void_p),
    **{f"dnnl_{kind}_destroy": (c_void_p,) for kind in (
        "engine", "stream", "memory_desc", "memory", "primitive_desc", "primitive", "primitive_attr", "post_ops",
    )},
})  # fmt: skip


class Library(NamedTuple):
    """The loaded library and its engine for the processor."""

    functions: ctypes.CDLL
    engine: int
    path: str
    version: str
    shares_threads: bool  # it works in nnc's threads, rather than in OpenMP's

    @property
    def instructions(self) -> str:
        """The instructions that it uses at most, as ONEDNN_MAX_CPU_ISA names them."""
        found = self.functions.dnnl_get_effective_cpu_isa()
        return next((name for name, bits in _INSTRUCTIONS.items() if bits == found), hex(found))

    def address(self, name: str) -> int:
        """Returns the address of a C function, for compiled code."""
        found = address_of(self.functions, name)
        if found is None:
            raise BackendError(f"oneDNN has no function {name}")
        return found


class _Version(ctypes.Structure):
    _fields_ = (("major", c_int), ("minor", c_int), ("patch", c_int), ("hash", c_char_p))


@cache
def library() -> Library | None:
    """oneDNN, loaded on the first call; None where the distribution is not installed or does not load."""
    path = _find()
    if path is None:
        return None
    with fork_waits():  # it has locks of its own, held while it is loaded and first called
        return _load(path)


def _load(path: str) -> Library | None:
    try:
        functions = ctypes.CDLL(path)
        for name, arguments in _SIGNATURES.items():
            function = getattr(functions, name)
            function.argtypes, function.restype = arguments, c_int
        functions.dnnl_primitive_desc_query_md.argtypes = (c_void_p, c_int, c_int)
        functions.dnnl_primitive_desc_query_md.restype = c_void_p
        functions.dnnl_memory_desc_get_size.argtypes = (c_void_p,)
        functions.dnnl_memory_desc_get_size.restype = c_size_t
        functions.dnnl_memory_desc_equal.argtypes = (c_void_p, c_void_p)
        functions.dnnl_version.restype = POINTER(_Version)
        if hasattr(functions, _BY_NAME):
            named = getattr(functions, _BY_NAME)
            named.argtypes, named.restype = (_HANDLES, c_int, _DIMS, c_int, c_char_p), c_int
    except (OSError, AttributeError):
        return None
    # Else it keeps 1024 primitives that nobody uses, with their machine code. Equal ones are shared here.
    functions.dnnl_set_primitive_cache_capacity(0)
    _keep_to_cpu(functions)
    engine = c_void_p()
    shared = share_threads(functions)
    if functions.dnnl_engine_create(byref(engine), 1, 0) != 0 or engine.value is None:
        return None
    version = functions.dnnl_version().contents
    return Library(functions, engine.value, path, f"{version.major}.{version.minor}.{version.patch}", shared)


def _keep_to_cpu(functions: ctypes.CDLL) -> None:
    """Keeps the library to the instructions of NNC_CPU. It warns where another package has used the library before."""
    cap = library_cap(ONEDNN)
    if cap is None or functions.dnnl_set_max_cpu_isa(_INSTRUCTIONS[cap]) == 0:
        return
    if functions.dnnl_get_effective_cpu_isa() & ~_INSTRUCTIONS[cap]:
        warnings.warn(
            f"NNC_CPU: oneDNN was in use before nnc loaded it, and runs more instructions than {cap} has.\n"
            f"Fix: set {ONEDNN}={cap}.",
            RuntimeWarning,
            stacklevel=2,
        )


@cache
def expect_library() -> None:
    """It will perhaps be asked for: a thread, one in each process, brings its file into memory where there is a core for it."""
    if sys.platform == "linux" and usable_threads() > 1:
        _thread.start_new_thread(_open, ())


def _open() -> None:
    path = _find()
    if path is not None:  # C's own function, since Python's lets no other thread run meanwhile
        with fork_waits():
            ctypes.CDLL(None).dlopen(os.fsencode(path), os.RTLD_NOW)


def share_threads(functions: ctypes.CDLL) -> bool:
    """Lets the library, which was compiled for GCC's OpenMP, work in nnc's own threads; whether that is possible.

    It is not for a library that calls functions that a team of nnc's threads lacks.
    """
    jit = cpu_compiler()
    if jit is None or not jit.runtime.has_team or not can_interpose():
        return False
    known = imported(functions)
    asked = {name for name in known if name.startswith(("GOMP_", "omp_"))}
    return asked - jit.standins.keys() <= _OF_SHUFFLES and interpose(known, jit.standins)


@cache
def _find() -> str | None:
    """Returns the shared library's file in the distribution."""
    names = [str(path) for path in files_of(DISTRIBUTION, "libdnnl.so") if path.name.startswith("libdnnl.so")]
    return min(names, key=len, default=None)


def loaded() -> Library:
    """Returns oneDNN, loaded.

    Raises:
        BackendError: it cannot be loaded.
    """
    found = library()
    if found is None:
        raise BackendError(f"oneDNN is not there; install {DISTRIBUTION}")
    return found


_STATUS = (
    "success",
    "out of memory",
    "invalid arguments",
    "unimplemented",
    "no further implementation",
    "runtime error",
)


def check(status: int, what: str) -> None:
    """Raises a `BackendError` unless the library says that it did `what` it was asked for."""
    if status:
        word = _STATUS[status] if status < len(_STATUS) else f"status {status}"
        raise BackendError(f"oneDNN: {what}: {word}")


class Owned:
    """An object of the library, released together with this."""

    __slots__ = ("__weakref__", "handle")
    kind = ""

    def __init__(self, handle: int | None) -> None:
        if handle is None:
            raise BackendError(f"oneDNN made no {self.kind}")
        self.handle = handle
        weakref.finalize(self, getattr(loaded().functions, f"dnnl_{self.kind}_destroy"), handle).atexit = False


def _create(function: str, *arguments: Any) -> int | None:
    """Returns the handle that a function of the library writes through its first argument.

    Raises:
        BackendError: the library refuses the call.
    """
    handle = c_void_p()
    with fork_waits():  # the library has locks of its own
        status = getattr(loaded().functions, function)(byref(handle), *arguments)
    check(status, function)
    return handle.value


def dims(values: Sequence[int]) -> Any:
    """Sizes as the library takes them."""
    return (c_int64 * max(len(values), 1))(*values)


class MemoryDesc(Owned):
    """A tensor's shape, dtype and layout. Nothing changes it, so descriptions with the same strides are one object."""

    __slots__ = ()
    kind = "memory_desc"

    @classmethod
    @lru_cache(maxsize=_DESCS)
    def strided(cls, shape: tuple[int, ...], dtype: DType, strides: tuple[int, ...]) -> MemoryDesc:
        """Returns a tensor with strides in bytes."""
        steps = [stride // dtype.itemsize for stride in strides]
        code = DATA_TYPES[dtype]
        return cls(_create("dnnl_memory_desc_create_with_strides", len(shape), dims(shape), code, dims(steps)))

    @classmethod
    @lru_cache(maxsize=_DESCS)
    def any(cls, shape: tuple[int, ...], dtype: DType) -> MemoryDesc:
        """Returns a tensor whose layout the primitive chooses."""
        code = DATA_TYPES[dtype]
        return cls(_create("dnnl_memory_desc_create_with_tag", len(shape), dims(shape), code, ANY_LAYOUT))

    @classmethod
    def blocked(cls, blocks: Blocks, dtype: DType) -> MemoryDesc:
        """Describes a tensor in a blocked layout.

        Raises:
            BackendError: the library does not know the layout.
        """
        if not hasattr(loaded().functions, _BY_NAME):
            raise BackendError("oneDNN has no layouts by name")
        code, sizes = DATA_TYPES[dtype], dims(blocks.sizes)
        return cls(_create(_BY_NAME, len(blocks.sizes), sizes, code, blocks.tag.encode()))

    def blocks(self, dtype: DType) -> Blocks | None:
        """Returns the blocked layout of this tensor; None where it has none that says all of it."""
        if self._number(_FORMAT_KIND) != _BLOCKED:
            return None
        ndim, count = self._number(_NDIMS), self._number(_BLOCK_COUNT)
        strides = self._numbers(_STRIDES, ndim)
        order = sorted(range(ndim), key=lambda axis: -strides[axis])
        pairs = zip(self._numbers(_BLOCK_AXES, count), self._numbers(_BLOCK_SIZES, count), strict=True)
        blocks = Blocks(self._numbers(_DIMS_OF, ndim), tuple(order), tuple(pairs))
        try:
            return blocks if MemoryDesc.blocked(blocks, dtype).same_as(self) else None
        except BackendError:
            return None

    def _number(self, question: int) -> int:
        found = c_int()
        check(loaded().functions.dnnl_memory_desc_query(self.handle, question, byref(found)), "query")
        return found.value

    def _numbers(self, question: int, count: int) -> tuple[int, ...]:
        found = _DIMS()
        check(loaded().functions.dnnl_memory_desc_query(self.handle, question, byref(found)), "query")
        return tuple(found[:count])

    @property
    def nbytes(self) -> int:
        """Bytes that the tensor takes, padding included."""
        return int(loaded().functions.dnnl_memory_desc_get_size(self.handle))

    def same_as(self, other: MemoryDesc) -> bool:
        """Whether both describe the same layout."""
        return bool(loaded().functions.dnnl_memory_desc_equal(self.handle, other.handle))


# -- post-ops: applied to a result before it is written ---------------------------------------------------------------------


class Eltwise(NamedTuple):
    """Applies a function of `ELTWISE`."""

    name: str


class Binary(NamedTuple):
    """Combines with another tensor of the result's shape (sizes of 1 broadcast) by an operation of `BINARY`."""

    name: str
    desc: MemoryDesc


PostOp = Eltwise | Binary


def post_op_argument(index: int) -> int:
    """Returns the role of the other tensor of the post-op with this index, a `Binary`."""
    return _POST_OP * (index + 1) | SRC_1


class _PostOps(Owned):
    __slots__ = ()
    kind = "post_ops"


class Attributes(Owned):
    """The attributes of a primitive: post-ops, and that its scratchpad is the caller's memory."""

    __slots__ = ("held",)
    kind = "primitive_attr"

    def __init__(self, post_ops: Sequence[PostOp] = ()) -> None:
        super().__init__(_create("dnnl_primitive_attr_create"))
        functions = loaded().functions
        check(functions.dnnl_primitive_attr_set_scratchpad_mode(self.handle, 1), "scratchpad mode")
        self.held = tuple(post_ops)
        if not post_ops:
            return
        chain = _PostOps(_create("dnnl_post_ops_create"))
        for op in post_ops:
            if isinstance(op, Eltwise):
                status = functions.dnnl_post_ops_append_eltwise(chain.handle, ELTWISE[op.name], 0, 0)
            else:
                status = functions.dnnl_post_ops_append_binary(chain.handle, BINARY[op.name], op.desc.handle)
            check(status, f"post-op {op}")
        check(functions.dnnl_primitive_attr_set_post_ops(self.handle, chain.handle), "post-ops")


@cache
def plain() -> Attributes:
    """Returns attributes that add nothing to a primitive."""
    return Attributes()


# -- operations --------------------------------------------------------------------------------------------------------


class PrimitiveDesc(Owned):
    """An operation on described tensors, with the implementation that the library chose."""

    __slots__ = ()
    kind = "primitive_desc"

    @classmethod
    def create(cls, operation: str, *arguments: Any) -> PrimitiveDesc:
        """Calls `dnnl_<operation>_primitive_desc_create` with the engine and these arguments (objects of this module are given by
        their handles, tuples as sizes, None as a null pointer).

        Raises:
            BackendError: the library has no implementation.
        """
        plain = [_plain(argument) for argument in arguments]
        return cls(_create(f"dnnl_{operation}_primitive_desc_create", loaded().engine, *plain))

    @classmethod
    def reorder(cls, source: MemoryDesc, target: MemoryDesc) -> PrimitiveDesc:
        """Returns a copy into another layout or dtype (roles SRC and DST)."""
        engine, name = loaded().engine, "dnnl_reorder_primitive_desc_create"
        return cls(_create(name, source.handle, engine, target.handle, engine, plain().handle))

    def desc(self, role: int) -> MemoryDesc:
        """Returns the tensor that stands in a role of `QUERIES`, with the layout that was chosen."""
        borrowed = loaded().functions.dnnl_primitive_desc_query_md(self.handle, QUERIES[role], 0)
        return MemoryDesc(_create("dnnl_memory_desc_clone", borrowed))

    def skip_to_reference(self) -> None:
        """Moves on to the library's plain loop over tensors of the same layouts.

        Raises:
            BackendError: the library has no plain loop.
        """
        while not self.implementation.startswith("ref"):
            check(loaded().functions.dnnl_primitive_desc_next_impl(self.handle), "next implementation")

    @property
    def scratchpad_bytes(self) -> int:
        """Bytes that the primitive needs while it runs."""
        functions = loaded().functions
        borrowed = functions.dnnl_primitive_desc_query_md(self.handle, QUERIES[SCRATCHPAD], 0)
        return int(functions.dnnl_memory_desc_get_size(borrowed))

    @property
    def implementation(self) -> str:
        """The implementation's name; one that begins with "ref" is slow."""
        text = c_char_p()
        check(loaded().functions.dnnl_primitive_desc_query(self.handle, _QUERY_IMPLEMENTATION, 0, byref(text)), "query")
        return (text.value or b"").decode()


def _plain(argument: Any) -> Any:
    if isinstance(argument, Owned):
        return argument.handle
    return dims(argument) if isinstance(argument, tuple) else argument


class Stream(Owned):
    """A queue on which primitives run, one after the other; of one thread at a time."""

    __slots__ = ()
    kind = "stream"

    def __init__(self) -> None:
        super().__init__(_create("dnnl_stream_create", loaded().engine, 1))


class Memory(Owned):
    """A tensor in memory; it is pointed to its data before each call."""

    __slots__ = ()
    kind = "memory"

    def __init__(self, desc: MemoryDesc) -> None:
        super().__init__(_create("dnnl_memory_create", desc.handle, loaded().engine, None))

    def point(self, address: int) -> None:
        """Says where the data lies."""
        check(loaded().functions.dnnl_memory_set_data_handle(self.handle, address), "data handle")
