"""A program with the facts known about it, and the names that its source uses."""

from __future__ import annotations

import os
import threading
import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

import nnc
import nnc.nn as nn
import nnc.numpy as nnp
from nnc import random, tree
from nnc.base import dtypes
from nnc.base.context import with_mode
from nnc.errors import NncError
from nnc.graph import Graph, TensorSpec, command
from nnc.testing.fuzz.examples.tables import FREEDOM, SURROGATES
from nnc.testing.fuzz.plain import Plain
from nnc.testing.fuzz.program import Program, inputs_source, program_source
from nnc.testing.fuzz.reference import by_reference
from nnc.testing.fuzz.values import WILD
from nnc.testing.fuzz.wild import SEEN

NDArray = np.ndarray[Any, Any]

SMALL = 40  # elements of all inputs together: a transpose by columns calls the function once for each
MOST_COMMANDS = 600  # that references run one by one, some 60 times for each mode
WAVE = "def wave(x):\n    return nnc.asarray(np.asarray(np.cos(np.arange(x.size))).reshape(x.shape).astype(x.dtype))"


@dataclass(frozen=True)
class Subject:
    """A program with the specs of its results."""

    program: Program
    results: tuple[TensorSpec, ...]

    @property
    def floats(self) -> list[int]:
        """The inputs to differentiate in."""
        inputs = enumerate(self.program.inputs)
        return [i for i, x in inputs if dtypes.is_inexact(dtypes.BY_NAME[x.dtype]) and not x.is_number]

    @property
    def smooth_results(self) -> list[int]:
        """The results that have derivatives."""
        return [i for i, spec in enumerate(self.results) if dtypes.is_inexact(spec.dtype)]

    @property
    def differentiable(self) -> bool:
        """Whether anything can be differentiated."""
        return bool(self.floats and self.smooth_results)

    @property
    def small(self) -> bool:
        """Whether a derivative by columns is cheap."""
        return sum(TensorSpec(x.shape, x.dtype).size for x in self.program.inputs) <= SMALL

    @property
    def precise(self) -> bool:
        """Whether all floats are float64, so that differences approximate derivatives."""
        made = {symbol.spec.dtype.name for node in self.graph.walk() for symbol in node.outputs}
        names = made | {x.dtype for x in self.program.inputs} | {spec.dtype.name for spec in self.results}
        return not names & {"float16", "bfloat16", "float32", "complex64"}

    @cached_property
    def graph(self) -> Graph:
        """The program as it is traced."""
        function = define(program_source(self.program))["program"]
        graph: Graph = nnc.make_graph(function)(*(x.array() for x in self.program.inputs))
        return graph

    @property
    def surrogates(self) -> bool:
        """Whether a derivative is by definition not the values' derivative, or belongs to another choice of phases."""
        return any(
            node.command.name in SURROGATES
            or (node.command.name in FREEDOM and any(dtypes.is_complex(s.spec.dtype) for s in node.outputs))
            for node in self.graph.walk()
        )

    @cached_property
    def resized(self) -> list[Program]:
        """The program with inputs of other sizes, where references take them."""
        sizes = sorted({n for x in self.program.inputs for n in x.shape if n})
        found: list[Program] = []
        for n in sizes:
            for m in sorted({n + 1, 2 * n, n + 7, 1} - {n}):
                inputs = tuple(
                    x if x.kind == "literal" else replace(x, shape=tuple(m if k == n else k for k in x.shape))
                    for x in self.program.inputs
                )
                other = replace(self.program, inputs=inputs)
                with suppress(Exception):  # sizes that stand in the program do not fit any more
                    if inputs != self.program.inputs and Subject.of(other) is not None:
                        # all branches
                        nnc.eval_shape(define(program_source(other))["program"], *(x.array() for x in inputs))
                        found.append(other)
        return found[:4]

    @property
    def has_rules(self) -> bool:
        """Whether functions have derivative rules of their own."""
        return any("custom_" in call for call in self.program.calls())

    @property
    def has_functions(self) -> bool:
        """Whether commands hold Python functions, which are not stored."""
        return any(
            node.command.name.startswith("custom_") or "callback" in node.command.name for node in self.graph.walk()
        )

    @property
    def has_effects(self) -> bool:
        """Whether callbacks note the values that they see."""
        return SEEN in self.program.calls()

    @property
    def specials(self) -> bool:
        """Whether infinities or NaN are among the inputs."""
        return any(x.kind == "special" for x in self.program.inputs)

    @property
    def denormals(self) -> bool:
        """Whether numbers about the smallest normal one, or of sizes far from 1, are among the inputs."""
        return any(x.kind in ("denormal", *WILD) for x in self.program.inputs)

    def source(self, body: str) -> str:
        """The program, its inputs, and a function `run` with this body."""
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        start = [WAVE, *(["seen = []"] if "seen." in body or self.has_effects else [])]
        return "\n\n".join([*start, program_source(self.program), inputs_source(self.program), f"def run():\n{lines}"])

    @classmethod
    def of(cls, program: Program) -> Subject | None:
        """A program with the specs of its results; None where references refuse it, or take too long."""
        subject = cls(program, ())
        try:
            with by_reference() as interpreter:
                results = execute(subject.source("return program(*inputs())"), Plain())
        except NncError:
            return None
        if interpreter.count > MOST_COMMANDS:
            return None
        return cls(program, tuple(TensorSpec(x.shape, x.dtype) for x in results))


def namespace(of_nnc: Any = nnc) -> dict[str, Any]:
    """The names that programs use."""
    return {
        "np": np, "seen": [], "nnc": of_nnc, "nnp": nnp, "nn": nn, "random": random, "command": command, "os": os, "patch": patch,
        "threading": threading,
        "TemporaryDirectory": TemporaryDirectory, "with_mode": with_mode,
    }  # fmt: skip


def define(source: str, of_nnc: Any = nnc) -> dict[str, Any]:
    """The names that a source defines."""
    names = namespace(of_nnc)
    exec(compile(source, "<program>", "exec"), names)
    return names


def execute(source: str, of_nnc: Any = nnc) -> list[NDArray]:
    """The leaves of the result of `run()`."""
    return [np.asarray(nnc.asarray(x) if dtypes.is_scalar(x) else x) for x in run_leaves(source, of_nnc)]


def run_leaves(source: str, of_nnc: Any = nnc) -> list[Any]:
    """The leaves of the result of `run()`, as they are."""
    names = define(source, of_nnc)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tree.leaves(names["run"]())
