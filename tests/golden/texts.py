"""The texts of one program, stage by stage: graphs, memory plan, schedule, steps and kernels, as named files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256

import nnc
from nnc.graph import PASSES, Graph, to_text
from nnc.lower.kernels.native import Native
from nnc.lower.phases import BEFORE_FUSION, FUSE, JOIN, SIMPLIFYING, names_of
from nnc.lower.plan.liveness import walk
from nnc.run.program import Program as Lowered
from tests.golden.programs import Program

Texts = dict[str, str]  # by the name of the file

# The last pass of each phase, and the file that shows the graph after it.
PHASES = {
    names_of(SIMPLIFYING)[-1]: "2-rewritten.txt",
    names_of(BEFORE_FUSION)[-1]: "3-ordered.txt",
    names_of((FUSE,))[-1]: "4-fused.txt",
    names_of((JOIN,))[-1]: "5-joined.txt",
}
_SOURCE = re.compile(r"\S*programs\.py:(\d+) in (?:\S+\.)?([\w<>]+)")
_KERNEL_NAME = re.compile(r"\bk[0-9a-f]{24}\b")
_MOST_LINES = 150  # of a kernel whose text is kept: a page or two


def make_texts(program: Program, *, all_kernels: bool = False) -> Texts:
    """Compiles a program and returns its texts.

    Args:
        program: the function, and the specs of its arguments.
        all_kernels: include the full text of every kernel, not only of the shortest one.
    """
    with _recorded_passes() as records:
        traced = nnc.compile(program.fun).lower(*program.arguments)
        executable = traced.compile()
    graphs = {"1-traced.txt": traced.graph} | {PHASES[name]: graph for name, graph in records if name in PHASES}
    return {
        "0-passes.txt": _passes_text(traced.graph, records),
        **_graph_texts(graphs),
        "6-memory.txt": _short_sources(str(executable.memory_plan)),
        "7-schedule.txt": _short_sources(str(executable.schedule)),
        "8-steps.txt": _short_sources(executable.as_text()),
        **_kernel_texts(executable._program, all_kernels),
    }


# -- graphs ------------------------------------------------------------------------------------------------------------


@contextmanager
def _recorded_passes() -> Iterator[list[tuple[str, Graph]]]:
    """Records the graph that each pass returns within the block, sub-graphs that are lowered by themselves included."""
    records: list[tuple[str, Graph]] = []
    registered = dict(PASSES)

    def record(name: str) -> None:
        function, when = registered[name].function, registered[name].when

        def recorded(graph: Graph, options: object) -> Graph:
            result = graph if when is not None and not when(options) else function(graph, options)
            records.append((name, result))
            return result

        PASSES[name] = replace(registered[name], function=recorded, when=None)

    for name in registered:
        record(name)
    try:
        yield records
    finally:
        PASSES.update(registered)


def _passes_text(traced: Graph, records: Sequence[tuple[str, Graph]]) -> str:
    """A line for each pass that ran: the number of nodes and a hash of the graph, where it changed."""
    before = to_text(traced, sources=False)
    lines = [f"traced: {traced.num_nodes} nodes, {_hash(before)}"]
    for name, graph in records:
        after = to_text(graph, sources=False)
        lines.append(f"{name}: {'same' if after == before else f'{graph.num_nodes} nodes, {_hash(after)}'}")
        before = after
    return "\n".join(lines)


def _graph_texts(graphs: dict[str, Graph]) -> Texts:
    """The readable form of each graph; a graph that did not change refers to the file before."""
    texts: Texts = {}
    before, at = "", ""
    for file, graph in sorted(graphs.items()):
        text = _short_sources(str(graph))
        texts[file] = f"the same as {at}" if text == before else text
        if text != before:
            before, at = text, file
    return texts


def _short_sources(text: str) -> str:
    """Shortens the user's lines, all of which are in one file: `# loss:41`."""
    return _SOURCE.sub(r"\2:\1", text)


# -- kernels -----------------------------------------------------------------------------------------------------------


def _kernel_texts(program: Lowered, all_kernels: bool) -> Texts:
    """A line for each step's kernel, the shortest kernel in full, and the program's entry as a hash."""
    natives = program.natives
    numbers: dict[str, int] = {}  # of kernels, in the order of the steps
    found: dict[str, Native] = {}
    lines = []

    def number(native: Native) -> int:
        if native.name not in numbers:
            for called in native.calls:
                number(called)
            numbers[native.name] = len(numbers)
            found[native.name] = native
            lines.append(_kernel_line(native, numbers))
        return numbers[native.name]

    rows = []
    for position, step in enumerate(walk(program.bound.steps)):
        native = natives.get(id(step))
        if native is not None:
            sizes = f" for {', '.join(map(str, native.numbers))}" if native.numbers else ""
            rows.append(f"  {position}: {step.command.name} runs kernel {number(native)}{sizes}")
        elif step.region is None:
            rows.append(f"  {position}: {step.command.name} runs from Python")
    code = program.code
    assert code is not None, "golden texts are those of compiled programs"
    ((apart, printed),) = code.printed.items()
    entry = _KERNEL_NAME.sub(lambda match: f"kernel_{numbers.get(match[0], '?')}", printed.text.text)
    about = "step by step" if apart else "in one go"
    lines = ["kernels", *lines, "steps", *rows, f"entry, {about}: {_measure(entry)}"]
    texts = {"9-kernels.txt": "\n".join(lines)}
    shown = found.values() if all_kernels else _shortest(list(found.values()))
    texts |= {f"kernel-{numbers[native.name]}.ll": native.text for native in shown}
    return texts | {"entry.ll": entry} if all_kernels else texts


def _kernel_line(native: Native, numbers: dict[str, int]) -> str:
    flags = [name for name in ("inline", "packed", "light") if getattr(native, name)]
    if native.state is not None:
        flags.append("state")
    if native.scratch:
        flags.append(f"scratch {native.scratch}")
    if native.symbols:
        flags.append(f"symbols {' '.join(sorted(native.symbols))}")
    if native.calls:
        flags.append(f"calls {' '.join(str(numbers[called.name]) for called in native.calls)}")
    text = _KERNEL_NAME.sub(lambda match: f"kernel_{numbers.get(match[0], '?')}", native.text)
    return ", ".join([f"  {numbers[native.name]}: {_measure(text)}", *flags])


def _shortest(natives: Sequence[Native]) -> Sequence[Native]:
    """The shortest kernel that is compiled by itself and short enough to be read; else none."""
    alone = [native for native in natives if not native.inline and native.text.count("\n") <= _MOST_LINES]
    return sorted(alone, key=lambda native: (len(native.text), native.name))[:1]


def _measure(text: str) -> str:
    return f"{text.count(chr(10))} lines, {_hash(text)}"


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]
