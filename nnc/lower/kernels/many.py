"""Prints many kernels of one form as one, which deals the elements of all of them out to threads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from nnc.lower.kernels.builder import Code
from nnc.lower.kernels.kernel_ir import flat_key
from nnc.lower.kernels.llvm import KernelPrinter, print_table
from nnc.lower.kernels.native import KERNEL, Native
from nnc.lower.plan.stages import Step


def print_many(step: Step, printer: KernelPrinter, vector_bytes: int) -> Native:
    """The kernel of a `fused_many` step: one text for any number of members, of any lengths."""
    members = list(_members(step))
    first = members[0]
    key = _key(first)
    if key is None or any(_key(member) != key for member in members):  # results lie within other tensors, with gaps
        return _one_by_one(members, [printer.native(member) for member in members])
    text, unit = print_table(first.graphs[0], first.inputs, first.outputs, vector_bytes)
    numbers, units = [], 0
    for member in members:
        length = math.prod(member.outputs[0].spec.shape)
        numbers += [length, units]
        units += -(-length // unit)
    return Native(text, numbers=(len(members), units, *numbers), packed=True)


def _members(step: Step) -> Iterator[Step]:
    """The kernels as steps of their own."""
    i = j = 0
    for graph in step.graphs:
        inputs, outputs = step.inputs[i : i + len(graph.inputs)], step.outputs[j : j + len(graph.outputs)]
        yield replace(step, inputs=inputs, outputs=outputs, graphs=(graph,))
        i, j = i + len(inputs), j + len(outputs)


def _key(member: Step) -> Any:
    return flat_key(member.graphs[0], (*member.inputs, *member.outputs))


def _one_by_one(members: Sequence[Step], natives: Sequence[Native]) -> Native:
    """A kernel that calls others one after the other; equal ones are there once."""
    names: dict[str, str] = {}
    main = Code("KERNEL", [("ptr", "table")])
    inputs, outputs = 0, sum(len(member.inputs) for member in members)
    for member, native in zip(members, natives, strict=True):
        name = names.setdefault(native.text, f"{KERNEL}.member{len(names)}")
        places = [*range(inputs, inputs + len(member.inputs)), *range(outputs, outputs + len(member.outputs))]
        inputs, outputs = inputs + len(member.inputs), outputs + len(member.outputs)
        words = [main.offset("%table", 8 * place) for place in places]
        operands = [f"ptr {main.let(f'load ptr, ptr {word}')}" for word in words]
        operands += [f"i64 {number}" for number in native.numbers]
        main.let(f"call i64 {name}({', '.join(operands)})")
    main.ret(main.integer(0))
    lines = [line for text, name in names.items() for line in _renamed(text, name).splitlines()]
    declarations = dict.fromkeys(line for line in lines if line.startswith("declare "))
    rest = [line for line in lines if not line.startswith("declare ")]
    return Native("\n".join([*declarations, *rest, main.text()]), packed=True)


def _renamed(text: str, name: str) -> str:
    return text.replace(f"define i64 {KERNEL}(", f"define internal i64 {KERNEL}(").replace(KERNEL, name)
