"""Functions that compiled code can call: a kernel as LLVM's text, and the protocol of a compiler that turns text into machine code.

A backend's `Kernel.native(step)` gives the `Native` of a step, made for its shapes and strides. Programs call it with the addresses
of the step's inputs, outputs and workspace; nothing of Python runs in between.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any, Protocol, TypeVar

from nnc.base.fork import new_lock

_MOST_CHARACTERS = 1 << 22  # of the texts that all printers remember; a transformer's training step has 1 << 19
_ENTRY = 1 << 8  # characters that an entry counts beside its text
KERNEL = "@KERNEL"  # stands for the kernel's own name in its text

# The parts of NumPy's arrays that compiled code reads, as NumPy publishes them for C.
HEAD = object.__basicsize__  # bytes of the reference count and the type, with which each object of Python begins
DATA, NDIM, SHAPE, DTYPE, FLAGS = (HEAD + at for at in (0, 8, 16, 40, 48))  # bytes from the start of the object
CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400


@dataclass(frozen=True)
class Native:
    """A kernel for compiled code.

    `text` holds LLVM functions and the declarations that they need. Names of its own begin with `@KERNEL`; the function
    `@KERNEL` itself takes a pointer for each input, each output, the workspace (where the kernel has one) and the state
    (likewise), in this order, then an i64 for each of `numbers` (sizes in which steps of one text differ), and returns an i64:
    0, or any other number where an input is refused; the reference then words the error. Equal texts are compiled once.

    `symbols` are addresses of C functions that the text declares. `state` makes data that one arena at a time needs, such as
    descriptions of memory that a library fills in; it is given the address of `scratch` bytes, which others use between calls.
    `inline`: so short that programs hold it in their own text, and loops take it in. `packed`: the kernel takes one pointer in the
    place of all pointers to tensors and all numbers: to 8 bytes for each of the numbers, then for each of the pointers.

    `begin` says that states will be wanted soon, of this kernel and of the kernels that were made before it: shared parts can be
    made meanwhile.

    `calls` are kernels, without symbols or state, that the text calls by name: code that several share, compiled once. `light`:
    it consists of calls, so that an optimising compilation would gain nothing.
    """

    text: str
    symbols: Mapping[str, int] = field(default_factory=dict)
    state: Callable[[int], KernelState] | None = None
    scratch: int = 0
    inline: bool = False
    numbers: tuple[int, ...] = ()
    packed: bool = False
    calls: tuple[Native, ...] = ()
    light: bool = False
    begin: Callable[[], None] = lambda: None

    @cached_property
    def name(self) -> str:
        """The name of the compiled function, which follows from the text."""
        return f"k{sha256(self.text.encode()).hexdigest()[:24]}"

    def at(self, numbers: tuple[int, ...]) -> Native:
        """Returns the kernel with other numbers. It keeps the facts that were found out about the text."""
        other = copy(self)
        object.__setattr__(other, "numbers", numbers)
        return other

    @property
    def code(self) -> str:
        """The text with its names filled in; not kept, since it is read once or twice and is as long as the text."""
        return self.text.replace(KERNEL, f"@{self.name}")

    @cached_property
    def is_held(self) -> bool:
        """Whether programs hold it in their own text: in another module, numbered metadata would mean something else."""
        return self.inline and not self.calls and re.search(r"^(!|attributes #)", self.text, re.MULTILINE) is None

    @cached_property
    def may_fail(self) -> bool:
        """Whether the kernel can return another status than 0."""
        return self.text.count("ret i64") != self.text.count("ret i64 0\n")


class HasText(Protocol):
    """A kernel that was printed, or more that is known of it."""

    @property
    def text(self) -> str:
        """The text of the kernel."""
        ...


NativeT = TypeVar("NativeT", bound="HasText | None")


class Texts:
    """The kernels that were printed or asked for last, by everything they depend on, as far as their texts fit."""

    def __init__(self, most: int = _MOST_CHARACTERS) -> None:
        self._most, self._characters = most, 0
        self._known: OrderedDict[Any, Any] = OrderedDict()
        self._lock = new_lock()

    def get(self, key: Any) -> Any:
        """Returns the kernel for a key; None where it is not remembered."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def find(self, key: Any, make: Callable[[], NativeT]) -> NativeT:
        """Finds the kernel for a key, or makes it."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                known: NativeT = self._known[key]
                return known
        made = make()
        with self._lock:
            if key not in self._known:  # else another thread made it, too
                self._known[key] = made
                self._characters += _size(made)
            while self._characters > self._most and len(self._known) > 1:
                self._characters -= _size(self._known.popitem(last=False)[1])
        return made


def _size(native: HasText | None) -> int:
    return _ENTRY + (len(native.text) if native is not None else 0)


PRINTED = Texts()  # of all printers; the printer is a part of each key


class Remembered:
    """The `native` of a command's kernel, which prints once for all steps with the same parameters, shapes and strides. A `sized`
    one takes sizes as numbers, and finds its kernels by itself where a step names another size.
    """

    def __init__(self, make: Callable[[Any], Native | None], sized: bool = False) -> None:
        self._make, self._sized = make, sized

    def __call__(self, step: Any) -> Native | None:
        """Returns the kernel of a step."""
        if self._sized and step.like is not None:
            return self._make(step)
        views = (*step.inputs, *step.outputs)
        key = repr(tuple(step.params.items())), tuple((v.spec, v.strides) for v in views)  # repr tells 0.0 from -0.0
        return PRINTED.find((self, key), lambda: self._make(step))


class KernelState(Protocol):
    """The state that a kernel keeps for one arena; it lives as long as the arena."""

    @property
    def address(self) -> int:
        """The address of the state."""
        ...


class Function(Protocol):
    """A compiled function, which stays loaded while this object lives."""

    @property
    def address(self) -> int:
        """The address to call."""
        ...


class Compiler(Protocol):
    """Turns text into machine code; a backend is one."""

    def __hash__(self) -> int: ...

    def works(self) -> bool:
        """Whether the compiler works, for which the caller may have to wait."""
        ...

    def expect(self, wanted: Native | str | None = None) -> None:
        """Announces that a kernel will be wanted soon, a program's text, or a text not printed yet. This is never needed, but may
        save time.
        """
        ...

    def load(self, natives: Sequence[Native]) -> Sequence[Function]:
        """Returns the functions of kernels, compiled together where they are not known yet."""
        ...

    def load_entry(self, text: str, symbols: Mapping[str, int], held: Any) -> Function:
        """Returns the function `@ENTRY` of a program, which calls `symbols`; `held` is kept as long as the function."""
        ...
