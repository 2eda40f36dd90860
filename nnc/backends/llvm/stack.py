"""Reads from machine code as text how deep the stack can grow."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

_LABEL = re.compile(r"^\"?([A-Za-z_.][\w.$]*)\"?:")
# Instructions of x86-64, in AT&T's syntax.
_PUSH = re.compile(r"^\s+pushq")
_ROOM = re.compile(r"^\s+(?:subq\s+\$|addq\s+\$-|andq\s+\$-)(\d+), %rsp")
_BELOW = re.compile(r"-(\d+)\(%rsp")  # the red zone, which functions that call nothing may use without taking room
_CALL = re.compile(r"^\s+(?:callq|jmp)\s+([A-Za-z_][\w.$]*)")
_ANY_CALL = re.compile(r"^\s+callq\s+\*")
_ADDRESS = re.compile(r"^\s+(?:leaq|movq)\s+([A-Za-z_][\w.$]*)(?:@GOTPCREL)?\(%rip\)")
_REGISTER_BYTES = _CALL_BYTES = 8


def stack_bytes(assembly: str, name: str, architecture: str) -> int | None:
    """Returns the bytes that a call of a function takes at most, without those of other libraries; None where the processor family
    is not known here.
    """
    if architecture not in ("x86_64", "AMD64"):
        return None
    own, red_zone, calls, addressed = Counter[str](), Counter[str](), defaultdict[str, set[str]](set), set[str]()
    calls_any: set[str] = set()
    function = ""
    for line in assembly.splitlines():
        if below := _BELOW.search(line):
            red_zone[function] = max(red_zone[function], int(below[1]))
        if label := _LABEL.match(line):
            function = function if label[1].startswith(".L") else label[1]
            own[function] += 0 if label[1].startswith(".L") else _CALL_BYTES
        elif _PUSH.match(line):
            own[function] += _REGISTER_BYTES
        elif found := _ROOM.match(line):
            own[function] += int(found[1])
        elif found := _CALL.match(line):
            calls[function].add(found[1])
        elif _ANY_CALL.match(line):
            calls_any.add(function)
        elif found := _ADDRESS.match(line):
            addressed.add(found[1])
    for each in calls_any:
        calls[each] |= addressed
    known: dict[str, int] = {}

    def deepest(function: str, path: tuple[str, ...]) -> int:
        if function in path or function not in own:  # a function that calls itself counts once
            return 0
        if function not in known:
            below = [deepest(callee, (*path, function)) for callee in calls[function]]
            known[function] = own[function] + max([red_zone[function], *below])
        return known[function]

    return deepest(name, ())
