"""The depth of the stack that is read from machine code: an upper bound, or unknown, for every processor."""

from __future__ import annotations

from typing import Any

import pytest

from nnc.backends.llvm.stack import stack_bytes
from nnc.device.targets.objects import OBJECT_TARGETS

binding = pytest.importorskip("llvmlite.binding")
TARGETS = [target for target in OBJECT_TARGETS if target != "native"]

OTHERS = """
declare void @other(ptr)
define internal void @inner(ptr %x) noinline {
  %room = alloca [300 x i8]
  call void @other(ptr %room)
  ret void
}
define internal void @twice(ptr %fn) noinline {
  call void %fn(ptr null)
  call void %fn(ptr null)
  ret void
}
@table = global ptr @inner
"""
KNOWN = {
    "no room": ("ret i32 %n", 0),
    "no calls": (  # below the stack pointer, where a system lets functions do so
        "%room = alloca [100 x i8]\n %at = getelementptr i8, ptr %room, i32 %n\n store volatile i8 1, ptr %at\n ret i32 0",
        100,
    ),
    "room": ("%room = alloca [10000 x i8]\n call void @other(ptr %room)\n ret i32 0", 10_000),
    "aligned": ("%room = alloca [10000 x i8], align 64\n call void @other(ptr %room)\n ret i32 0", 10_000),
    "megabytes": ("%room = alloca [10000000 x i8], align 64\n call void @other(ptr %room)\n ret i32 0", 10_000_000),
    "a call": ("%room = alloca [50 x i8]\n call void @inner(ptr %room)\n call void @other(ptr %room)\n ret i32 0", 350),
    "a pointer": ("call void @twice(ptr @inner)\n ret i32 0", 300),
    "a pointer in memory": (
        "%fn = load ptr, ptr @table\n call void %fn(ptr null)\n call void %fn(ptr null)\n ret i32 0",
        300,
    ),
    "a jump to a pointer": ("%fn = load ptr, ptr @table\n %x = tail call i32 %fn(i32 %n)\n ret i32 %x", 300),
}
_CALL = "call void @other(ptr %room)"
UNKNOWN = {
    "room of unknown size": f"%room = alloca i8, i32 %n\n {_CALL}\n ret i32 0",
    "more room later": f"%room = alloca [9 x i8]\n {_CALL}\n %more = alloca i8, i32 %n\n call void @other(ptr %more)\n ret i32 0",
    "itself": f"%room = alloca [9 x i8]\n {_CALL}\n %x = call i32 @f(i32 %n)\n {_CALL}\n ret i32 %x",
}


def depth(target: str, body: str) -> int | None:
    """The depth of a function with this body."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    processor = OBJECT_TARGETS[target]
    machine: Any = binding.Target.from_triple(processor.triple).create_target_machine(
        processor.cpu, processor.features, 2, reloc=processor.relocation, codemodel="small"
    )
    head = f'target datalayout = "{machine.target_data}"\ntarget triple = "{processor.triple}"\n'
    text = f"{head}{OTHERS}define i32 @f(i32 %n) {{\n {body}\n}}\n"
    module = binding.parse_assembly(text, binding.create_context())
    return stack_bytes(machine.emit_assembly(module), "f", processor.architecture)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KNOWN)
def test_it_is_at_least_the_room_of_the_function_and_little_more(name: str, target: str) -> None:
    body, room = KNOWN[name]
    found = depth(target, body)
    assert found is not None and room <= found <= room + 160


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", UNKNOWN)
def test_it_is_unknown_where_the_room_is(name: str, target: str) -> None:
    assert depth(target, UNKNOWN[name]) is None


def test_it_is_unknown_for_other_processors_and_other_systems() -> None:
    assert stack_bytes("f:\n ret\n", "f", "riscv64") is None
    assert stack_bytes("_f:\n ret\n", "f", "arm64") is None
