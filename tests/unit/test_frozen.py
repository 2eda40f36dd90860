"""Values are frozen: instances of the dataclasses listed here alone change. They are builders, tables, queues and notes of work."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import nnc

ROOT = Path(nnc.__file__).parent
MARKS = ("dataclass", "dataclasses.dataclass")
CHANGING = {
    "nnc.backends.cpu.threads.threads": "Threads",
    "nnc.backends.cuda.libraries.dot": "_Terms",
    "nnc.backends.cuda.kernels.merges": "Merge",
    "nnc.backends.cuda.kernels.networks": "Network",
    "nnc.backends.cuda.kernels.segments": "_Run",
    "nnc.backends.mpi.guard": "ProcessGuard",
    "nnc.device.capture": "Node",
    "nnc.testing.devices.ptx.counts": "Counts",
    "nnc.testing.devices.ptx.machine": "_Group",
    "nnc.testing.devices.ptx.regions": "_Segment",
    "nnc.testing.devices.ptx.syntax": "Function",
    "nnc.testing.devices.sim.order": "_Range",
    "nnc.testing.devices.sim.streams": "_Item",
    "nnc.graph.dispatch": "_Eager",
    "nnc.graph.registry": "_Registry",
    "nnc.calls.specialise": "CallTable _Layers",
    "nnc.lower.kernels.builder": "Carried",
    "nnc.lower.kernels.values": "Scope",
    "nnc.lower.passes.fusion.grouping": "FusionGroup",
    "nnc.lower.passes.fusion.prefuse": "_UnitNodes",
    "nnc.lower.passes.memory.rematerialize_to_budget": "_Search",
    "nnc.run.executor": "_ArrayPlace",
    "nnc.run.native_frame": "_Callbacks",
    "nnc.run.store.stored": "ProgramPlace",
    "nnc.nn.summaries": "_Entry",
    "nnc.compiled.retraces": "_Origins",
    "nnc.compiled.signature": "Call",
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
