"""Lowered programs in files, so that the next process that compiles the same function skips passes, planning and printing.

A program is found by all that it depends on: the traced graph, options, the files of nnc, versions of libraries and the
processor. Source lines are not among it: the stored program names them by their positions in the graph, so it points to the lines
of the present trace, wherever these moved.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Iterator, Set
from dataclasses import dataclass, fields
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nnc.base.context import timed
from nnc.base.libraries import library_versions
from nnc.base.machine import gpu_library_versions, processor
from nnc.base.options import Options, chosen_cpu
from nnc.base.source import SourceLine
from nnc.device import CPU, CUDA, kind_of
from nnc.errors import GraphError
from nnc.graph import ATTRIBUTES, Graph, Kernel, structural_hash
from nnc.graph.kernels import KernelFactory
from nnc.graph.passes import added_passes
from nnc.graph.registry import REGISTRY
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.stages import Bound
from nnc.run.program import Program
from nnc.run.store.cache import Cache
from nnc.run.store.stored_form import StoredProgram, encode_program

_KIND = "programs"
_FOLDER = Path(__file__).parents[2]
# make graphs, and lower none
_ABOVE = frozenset(
    {"trace", "numpy", "random", "debug", "nn", "optim", "io", "data", "view", "scipy", "testing", "tree"}
)
_OF_OTHERS = {CPU: frozenset({"cuda"})}  # folders for other kinds of devices
_STARTED = time.time()
_SETTLED = 2.0  # seconds; files that changed later may differ from the files that this process runs
_APART = frozenset({"cache_folder", "verify_passes"})  # options that programs do not depend on
_MOST_CONSTANTS = 1 << 20  # bytes of constants that are kept with a program


class Name(NamedTuple):
    """The key of a program, the source lines of its graph, and the commands that other packages change."""

    key: dict[str, Any]
    sources: tuple[SourceLine, ...]
    foreign: frozenset[str]


@dataclass(eq=False)
class ProgramPlace:
    """The place in the cache for the program of a graph.

    Where nothing has been kept yet, the key is computed only when a program is kept, beside the first steps. By then the user
    may have written to the memory of constants; such a program is not kept.

    Args:
        facts: the facts on which the program depends, beside the graph and the facts found out here.
        kind: the kind of device that the program is for.
    """

    cache: Cache
    graph: Graph
    facts: dict[str, Any]
    kind: str
    constants: str = ""  # a digest that tells them from others, if they were read before anything else of the graph

    def read(self) -> StoredProgram | None:
        """Returns the program, without kernels; None where there is none, or no sound one."""
        if not self.cache.holds(_KIND):
            self.constants = _constants_digest(self.graph)
            return None
        with timed("reading the program"):
            name = self.name
            found = self.cache.read_bytes(_KIND, name.key) if name is not None else None
            if name is None or found is None:
                return None
            try:
                return StoredProgram(found, name.sources)
            except ValueError:
                return None  # of another form, though whole

    def keep(self, program: Program) -> None:
        """Keeps a program, if it has a stored form that is worth the room."""
        with timed("keeping the program"):
            name = self.name
            stored = self._encode(program, name) if name is not None else None
            if name is None or stored is None or self.constants not in ("", _constants_digest(self.graph)):
                return
            self.cache.write_bytes(_KIND, name.key, *stored)

    @cached_property
    def name(self) -> Name | None:
        """The key of the program; None where it has none: a parameter has no stable form, files of nnc have changed, somebody
        else's package defines a command.
        """
        files, foreign = files_digest(self.kind), foreign_commands(REGISTRY.version)
        if files is None or (foreign and any(node.command.name in foreign for node in self.graph.walk())):
            return None
        try:
            digest = structural_hash(self.graph)
        except GraphError:
            return None
        sources: dict[SourceLine, int] = {}
        names = hashlib.sha256(json.dumps(_labels(self.graph, sources)).encode()).hexdigest()
        key = {"graph": digest, "names": names, "files": files, "here": _here(self.kind), "foreign": sorted(foreign)}
        return Name(key | self.facts, tuple(sources), foreign)

    @staticmethod
    def _encode(program: Program, name: Name) -> tuple[bytes, bytes] | None:
        bound = program.bound
        if sum(value.nbytes for value in bound.constants) > _MOST_CONSTANTS or _commands(bound) & name.foreign:
            return None
        try:
            return encode_program(program, name.sources)
        except GraphError:  # a parameter is a function, or the like
            return None


def find_place(graph: Graph, options: Options, *, native: bool, choice: str) -> ProgramPlace | None:
    """Finds where the program of `graph` is kept. None where nothing is kept: there is no folder, each program is to be
    checked, or other packages add passes, whose files may change unnoticed.

    Args:
        native: whether the program is compiled.
        choice: the name of the function that chooses kernels.
    """
    if options.cache_folder is None or options.verify_passes or options.guard or added_passes():
        return None
    chosen = {f.name: repr(getattr(options, f.name)) for f in fields(options) if f.name not in _APART}
    facts = {"options": chosen, "native": native, "choice": choice}
    return ProgramPlace(Cache(options.cache_folder), graph, facts, kind_of(options.device))


def prepare(device: str) -> None:
    """Finds the facts on which a device's stored programs depend beside their graphs, so that no call has to wait for them."""
    kind = kind_of(device)
    files_digest(kind)
    foreign_commands(REGISTRY.version)
    _here(kind)


def _constants_digest(graph: Graph) -> str:
    """Returns a digest of the constants of a graph and its sub-graphs."""
    digest = hashlib.sha256()
    for each in (graph, *(inner for node in graph.walk() for inner in node.graphs)):
        for value in each.constants.values():
            digest.update(np.asarray(value).tobytes())
    return digest.hexdigest()


def _commands(bound: Bound) -> set[str]:
    """Returns the names of all commands of a program."""
    steps = list(walk(bound.steps))
    inner = (node for step in steps for graph in step.graphs for node in graph.walk())
    return {step.command.name for step in steps} | {node.command.name for node in inner}


def _labels(graph: Graph, sources: dict[SourceLine, int]) -> list[Any]:
    """Lists names, and the nodes with the same source line, which `structural_hash` leaves out. Notes the lines by first
    appearance.
    """
    labels: list[Any] = [graph.name, [symbol.name for symbol in graph.symbols()]]
    source: SourceLine | None = None
    number: int | None = None
    for node in graph.nodes:
        for inner in node.graphs:
            labels.append(_labels(inner, sources))
        if node.source is not source:  # else as the node before
            source = node.source
            number = None if source is None else sources.setdefault(source, len(sources))
        labels.append(number)
    return labels


@cache
def files_digest(kind: str) -> str | None:
    """Returns a digest of nnc's files, as far as they have a part in lowering for a kind of devices: names, sizes and times; None
    where one changed after this process read it.
    """
    found = [(entry.path, entry.stat()) for entry in _python_files(_FOLDER, _OF_OTHERS.get(kind, frozenset()), _ABOVE)]
    begin = len(str(_FOLDER))
    lines = sorted(f"{path[begin:]} {facts.st_size} {facts.st_mtime_ns}\n" for path, facts in found)
    newest = max((facts.st_mtime for _, facts in found), default=0.0)
    return hashlib.sha256("".join(lines).encode()).hexdigest() if newest < _STARTED - _SETTLED else None


def _python_files(
    folder: os.PathLike[str] | str, without: Set[str], first_without: Set[str] = frozenset()
) -> Iterator[os.DirEntry[str]]:
    """The Python files in a folder and those within it, but not in folders of these names, or in the first folder of those."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry
            elif entry.name != "__pycache__" and entry.name not in without | first_without and entry.is_dir():
                yield from _python_files(entry.path, without)


@cache
def _here(kind: str) -> dict[str, str]:
    """Returns the versions and the processor that programs for a kind of devices are made for."""
    facts = processor(Path("/proc/cpuinfo"), chosen_cpu())
    of_gpus = gpu_library_versions() if kind == CUDA else {}
    return {**facts, "python": platform.python_version(), **library_versions(), **of_gpus}


@lru_cache(maxsize=1)
def foreign_commands(version: int) -> frozenset[str]:
    """Returns the commands that another package changes, in this version of the registry: its files may change unnoticed."""
    return frozenset(
        each.name for column in ATTRIBUTES.values() for each, value in column.items() if not _is_own(value)
    )


def _is_own(value: Any) -> bool:
    """Whether the functions within a cell of the registry are all of this package, or of packages that it is made with."""
    if isinstance(value, KernelFactory):
        return _is_own(value.make)
    if isinstance(value, Kernel):
        functions = value.run, value.supports, value.workspace, value.native, value.layouts
        return all(map(_is_own, functions))
    if isinstance(value, tuple):
        return all(map(_is_own, value))
    return _is_own_module(getattr(value, "__module__", None))


@cache
def _is_own_module(name: str | None) -> bool:
    return name is None or name.partition(".")[0] in ("nnc", "builtins", "numpy", "functools")
