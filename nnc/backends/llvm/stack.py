"""Reads from machine code as text how deep the stack can grow."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

_LABEL = re.compile(r"^\"?([A-Za-z_][\w.$]*)\"?:")
# By processor family: what pushes registers, what takes room, what rounds the pointer, what calls or jumps to a function, what takes
# the address of one, and bytes that a call itself takes.
_X86 = (
    re.compile(r"^\s+pushq"), 8, re.compile(r"^\s+subq\s+\$(\d+), %rsp"), re.compile(r"^\s+andq\s+\$-(\d+), %rsp"),
    re.compile(r"^\s+(?:callq|jmp)\s+([A-Za-z_][\w.$]*)"), re.compile(r"^\s+callq\s+\*"),
    re.compile(r"^\s+(?:leaq|movq)\s+([A-Za-z_][\w.$]*)(?:@GOTPCREL)?\(%rip\)"), 8,
)  # fmt: skip


@dataclass(slots=True)
class _Frame:
    own: int
    calls: set[str] = field(default_factory=set)
    calls_any: bool = False


def stack_bytes(assembly: str, name: str, architecture: str) -> int | None:
    """Returns the bytes that a call of a function takes at most, without those of other libraries; None where the processor family
    is not known here.
    """
    if architecture not in ("x86_64", "AMD64"):
        return None
    push, pushed, room, rounds, call, any_call, address, own = _X86
    frames: dict[str, _Frame] = {}
    taken, frame = set[str](), _Frame(own)
    for line in assembly.splitlines():
        if label := _LABEL.match(line):
            if not label[1].startswith(".L"):
                frame = frames[label[1]] = _Frame(own)
        elif push.match(line):
            frame.own += pushed
        elif (found := room.match(line)) or (found := rounds.match(line)):
            frame.own += int(found[1])
        elif found := call.match(line):
            frame.calls.add(found[1])
        elif any_call.match(line):
            frame.calls_any = True
        elif found := address.match(line):
            taken.add(found[1])
    for each in frames.values():
        each.calls &= frames.keys()
        if each.calls_any:
            each.calls |= taken & frames.keys()
    return _deepest(frames, name, defaultdict(int), ())


def _deepest(frames: Mapping[str, _Frame], name: str, known: dict[str, int], path: tuple[str, ...]) -> int:
    if name in path or name not in frames:  # a function that calls itself counts once
        return 0
    if name not in known:
        frame = frames[name]
        below = max((_deepest(frames, callee, known, (*path, name)) for callee in frame.calls), default=0)
        known[name] = frame.own + below
    return known[name]
