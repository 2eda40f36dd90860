"""Values are frozen: instances of the dataclasses listed here alone change. They are builders, tables, queues and notes of work."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import nnc

ROOT = Path(nnc.__file__).parent
MARKS = ("dataclass", "dataclasses.dataclass")
CHANGING = {
    "nnc.backends.cpu.threads": "Threads",
    "nnc.backends.cuda.epilogues": "_Terms",
    "nnc.backends.cuda.merges": "Merge",
    "nnc.backends.cuda.networks": "Network",
    "nnc.backends.cuda.segments": "_Run",
    "nnc.backends.mpi.guard": "Guard",
    "nnc.devices.capture": "Node",
    "nnc.devices.ptx.counts": "Counts",
    "nnc.devices.ptx.machine": "_Group",
    "nnc.devices.ptx.regions": "_Segment",
    "nnc.devices.ptx.syntax": "Function",
    "nnc.devices.sim.order": "_Range",
    "nnc.devices.sim.streams": "_Item",
    "nnc.graph.dispatch": "_Eager",
    "nnc.graph.registry": "_Bind _Registry",
    "nnc.graph.specialise": "CallTable _Layers",
    "nnc.lower.alloc.compiled": "_Loader",
    "nnc.lower.kernels.builder": "Carried",
    "nnc.lower.kernels.values": "Block",
    "nnc.lower.passes.fusion.grouping": "Group",
    "nnc.lower.passes.fusion.prefuse": "_Group",
    "nnc.lower.passes.memory.remat": "_Search",
    "nnc.lower.program.cache": "_Room",
    "nnc.lower.program.executor": "_Place",
    "nnc.lower.program.native_frame": "_Callbacks",
    "nnc.lower.program.step_table": "StepTable",
    "nnc.lower.program.stored": "Place",
    "nnc.nn.summaries": "_Entry",
    "nnc.retraces": "_Origins",
    "nnc.signature": "Call",
    "nnc.testing.fuzz.generate": "Generator",
    "nnc.testing.fuzz.report": "Report",
    "nnc.trace.dynamic.memo": "_Entry",
    "nnc.trace.dynamic.routine": "Record",
}


def test_dataclasses_are_frozen_but_for_those_that_are_listed() -> None:
    found = defaultdict[str, list[str]](list)
    for file in sorted(ROOT.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text if "dataclass" in text else "")):
            if isinstance(node, ast.ClassDef):
                marks = [ast.unparse(each) for each in node.decorator_list]
                if any(mark.split("(")[0] in MARKS and "frozen=True" not in mark for mark in marks):
                    name = ".".join(file.relative_to(ROOT.parent).with_suffix("").parts)
                    found[name].append(node.name)
    assert {name: " ".join(classes) for name, classes in found.items()} == CHANGING
