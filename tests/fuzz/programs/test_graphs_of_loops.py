"""Random graphs of nested loops, branches and joins, bound into one arena: a program agrees with its graph.

Values have four specs: small ones, one that is large enough for a loop to peel its first round, one without elements, and integers,
which also say how long loops run and which branch is taken; so each graph is run for several inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, note
from hypothesis import strategies as st

import nnc  # noqa: F401  (registers every command)
from nnc.array.array import Array
from nnc.backends.choose import choose_kernel
from nnc.base.dtypes import float32, float64, int64
from nnc.base.options import Options
from nnc.compiled.pipeline import lower
from nnc.graph import Graph, GraphBuilder, Symbol, TensorSpec

SMALL, LARGE, EMPTY, INTEGER = (
    TensorSpec((2, 3), float64),
    TensorSpec((16, 32), float64),
    TensorSpec((0, 3), float32),
    TensorSpec((), int64),
)
SPECS = (SMALL, SMALL, LARGE, EMPTY, INTEGER)
UNARY = ("neg", "tanh", "flip", "cumsum", "transposed", "rolled", "twice")
SIMPLE = ("unary", "binary", "join", "pad", "update")
NESTED = ("unary", "binary", "join", "scan", "tested", "counted", "case_of")


@dataclass(frozen=True, slots=True)
class Writer:
    """Adds nodes to a graph on values that it knows; there is one of each spec at least."""

    draw: Any
    b: GraphBuilder
    known: list[Symbol]

    def pick(self, spec: TensorSpec) -> Symbol:
        """Any value of a spec."""
        alike = [s for s in self.known if (s.shape, s.dtype) == (spec.shape, spec.dtype)]
        return self.draw(st.sampled_from(alike))  # type: ignore[no-any-return]

    def spec(self) -> TensorSpec:
        return self.draw(st.sampled_from(SPECS))  # type: ignore[no-any-return]

    def specs(self, least: int, most: int) -> list[TensorSpec]:
        return self.draw(st.lists(st.sampled_from(SPECS), min_size=least, max_size=most))  # type: ignore[no-any-return]

    def values(self, depth: int) -> None:
        """Appends some nodes, whose results are known from then on."""
        for _ in range(self.draw(st.integers(1, 4))):
            kind = self.draw(st.sampled_from(NESTED if depth else SIMPLE))
            if kind in SIMPLE:
                spec = self.spec()
                self.known.append(self.scalar() if spec == INTEGER else getattr(self, kind)(spec))
            else:
                getattr(self, kind)(depth)

    # -- without sub-graphs --------------------------------------------------------------------------------------------

    def scalar(self) -> Any:
        name = self.draw(st.sampled_from(("minimum", "maximum")))
        return self.b.add(name, self.pick(INTEGER), self.pick(INTEGER))

    def unary(self, spec: TensorSpec) -> Any:
        b, x, name = self.b, self.pick(spec), self.draw(st.sampled_from(UNARY))
        if name == "flip":
            return b.add("flip", x, axes=(1,))
        if name == "cumsum":
            return b.add("tanh", b.add("cumsum", x, axis=1))
        if name == "transposed":  # a value in another order than its memory
            return b.add("reshape", b.add("transpose", x, permutation=(1, 0)), shape=spec.shape)
        if name == "rolled" and spec.size:
            rows, columns = spec.shape
            half = b.add("slice", x, start=(0, 0), limit=(rows // 2, columns), stride=(1, 1))
            return b.add("concatenate", b.add("neg", half), half, axis=0)
        if name == "twice":
            return b.add("tanh", b.add("add", x, x))
        return b.add("neg" if name == "neg" else "tanh", x)

    def binary(self, spec: TensorSpec) -> Any:
        return self.b.add("tanh", self.b.add("add", self.pick(spec), self.pick(spec)))

    def join(self, spec: TensorSpec) -> Any:
        """Two values joined, something done with the whole, and a part of that."""
        axis, b = self.draw(st.integers(0, 1)), self.b
        whole = b.add("concatenate", self.unary(spec), self.pick(spec), axis=axis)
        self.known.append(whole)
        whole = b.add("tanh", b.add("cumsum", whole, axis=self.draw(st.integers(0, 1))))
        start = tuple(n * (a == axis) for a, n in enumerate(spec.shape))
        limit = tuple(a + n for a, n in zip(start, spec.shape, strict=True))
        return b.add("slice", whole, start=start, limit=limit, stride=(1, 1))

    def pad(self, spec: TensorSpec) -> Any:
        """A value among zeros."""
        at, b = self.draw(st.integers(0, 1)), self.b
        x = self.unary(spec)
        whole = b.add(
            "assemble", x, shape=(spec.shape[0] + 1, 4 + spec.shape[1]), starts=((at, 2 * at),), dtype=spec.dtype
        )
        return b.add(
            "slice", b.add("neg", whole), start=(0, 1), limit=(spec.shape[0], 1 + spec.shape[1]), stride=(1, 1)
        )

    def update(self, spec: TensorSpec) -> Any:
        """A row written over, in place where that can be."""
        x, b = self.pick(spec), self.b
        if not spec.size:
            return x
        row = b.add("slice", self.pick(spec), start=(0, 0), limit=(1, spec.shape[1]), stride=(1, 1))
        return b.add("dynamic_update_slice", x, row, self.pick(INTEGER), b.constant(0, "int64"), mode="clip")

    # -- with sub-graphs -----------------------------------------------------------------------------------------------

    def inner(self, name: str, specs: list[TensorSpec], least: int = 0) -> Writer:
        """The writer of a sub-graph, which takes values of `specs`; a number first, for a round."""
        b = GraphBuilder(name)
        known = [b.input(spec) for spec in specs]
        known += [b.constant(np.full(spec.shape, 1.5 + i), spec.dtype) for i, spec in enumerate((SMALL, LARGE, EMPTY))]
        known.append(b.constant(least, "int64"))
        return Writer(self.draw, b, known)

    def append(self, results: Any) -> None:
        self.known.extend(results if isinstance(results, tuple) else [results])

    def case_of(self, depth: int) -> None:
        index = self.b.add("minimum", self.pick(INTEGER), self.b.constant(1, "int64"))
        taken, yielded = self.specs(1, 3), self.specs(1, 3)
        branches = []
        for _ in range(2):
            branch = self.inner("branch", taken)
            branch.values(depth - 1)
            branches.append(branch.b.build(*map(branch.pick, yielded)))
        self.append(self.b.add("case_of", index, *map(self.pick, taken), graphs=tuple(branches)))

    def round(self, depth: int, elements: list[TensorSpec]) -> tuple[Writer, list[TensorSpec], list[Symbol]]:
        """The writer of an iteration, the specs of its carry, and its operands."""
        carried, captured = self.specs(1, 4), self.specs(0, 2)
        body = self.inner("round", [INTEGER, *elements, *carried, *captured], 1)
        return body, carried, [self.pick(spec) for spec in (*carried, *captured)]

    def scan(self, depth: int) -> None:
        length, elements = self.draw(st.integers(0, 6)), self.specs(0, 1)
        body, carried, operands = self.round(depth, elements)
        body.values(depth - 1)
        given = [body.pick(spec) for spec in carried]
        rows = [
            self.draw(st.sampled_from([*given, *map(body.pick, SPECS)])) for _ in range(self.draw(st.integers(0, 2)))
        ]
        sequences = [self.b.add("broadcast_to", self.pick(s), shape=(length, *s.shape)) for s in elements]
        if self.draw(st.booleans()):
            sequences = [
                self.b.add("flip", x, axes=(0,)) if x.shape[1:] == () else self.b.add("neg", x) for x in sequences
            ]
        results = self.b.add(
            "scan", *sequences, *operands, graphs=(body.b.build(*given, *rows),), xs=len(elements), carries=len(carried),
            length=length, reverse=self.draw(st.booleans()),
        )  # fmt: skip
        results = list(results) if isinstance(results, tuple) else [results]
        self.known.extend(results[: len(carried)])
        for row, stack in zip(rows, results[len(carried) :], strict=True):
            name = "reduce_max" if row.spec == INTEGER else "reduce_sum"
            if length or row.spec != INTEGER:
                self.known.append(self.b.add(name, stack, axes=(0,)))

    def counted(self, depth: int) -> None:
        """A scan whose length is known only when it runs."""
        body, carried, operands = self.round(depth, [])
        body.values(depth - 1)
        graph = body.b.build(*(body.pick(spec) for spec in carried))
        self.append(
            self.b.add("scan", self.pick(INTEGER), *operands, graphs=(graph,), xs=0, carries=len(carried), length=None)
        )

    def tested(self, depth: int) -> None:
        """A `while`, whose test stands somewhere in the round."""
        carried, captured = self.specs(1, 4), [*self.specs(0, 2), INTEGER]
        body = self.inner("round", [INTEGER, *carried, *captured], 1)
        if self.draw(st.booleans()):
            body.values(0)
        condition = body.b.add("less", body.b.inputs[0], body.b.inputs[-1])
        before = len(body.b.build(condition).nodes)
        exits = [body.pick(spec) for spec in self.specs(0, 2)]
        body.values(depth - 1)
        graph = body.b.build(condition, *(body.pick(spec) for spec in carried), *exits)
        operands = [self.pick(spec) for spec in (*carried, *captured)]
        self.append(self.b.add("while", *operands, graphs=(graph,), carries=len(carried), before=before))


@st.composite
def graphs(draw: Any) -> Graph:
    writer = Writer(draw, GraphBuilder("random loops"), [])
    writer.known.extend([writer.b.input(spec) for spec in (INTEGER, SMALL, LARGE, EMPTY, INTEGER, SMALL, LARGE)])
    writer.values(2)
    return writer.b.build(*map(writer.pick, writer.specs(1, 4)), writer.known[-1])


def arguments(graph: Graph, iterations: int) -> list[Any]:
    rng = np.random.default_rng(iterations)
    return [
        np.asarray((iterations + i) % 5) if spec == INTEGER else rng.uniform(-1, 1, spec.shape).astype(spec.dtype)
        for i, spec in enumerate(graph.input_specs)
    ]


@given(graphs(), st.sets(st.integers(0, 6)))
def test_a_program_of_loops_and_branches_agrees_with_its_graph(graph: Graph, donated: set[int]) -> None:
    note(str(graph))
    program = lower(graph, Options(verify_passes=True, donated=tuple(sorted(donated))), choose_kernel)
    for iterations in (0, 1, 3):
        inputs = arguments(graph, iterations)
        expected = [np.asarray(x) for x in graph.evaluate([Array(x.copy()) for x in inputs])]
        arrays = [x.copy() for x in inputs]
        for result, wanted in zip(program.run(arrays), expected, strict=True):
            assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=1e-6)
        for i, (x, y) in enumerate(zip(arrays, inputs, strict=True)):
            assert i in donated or np.array_equal(x, y)
