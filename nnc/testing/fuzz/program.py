"""Generated programs as data, and their source.

A program is a list of steps, each of which binds names to the results of a call. Functions given to a call (the body of a loop) are
blocks. The source is run: the printed source of a finding is the program that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from nnc.testing.fuzz.values import Input


@dataclass(frozen=True, slots=True)
class Ref:
    """A value by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Function:
    """A block of the step, by its position."""

    position: int


@dataclass(frozen=True, slots=True)
class Code:
    """An expression; `args` stand for the numbers in its braces."""

    text: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Block:
    """A function: `params` and `results` are names in nested tuples."""

    params: tuple[Any, ...]
    steps: tuple[Step, ...]
    results: Any


@dataclass(frozen=True)
class Step:
    """`results = call(*args, **settings)`; `call` is a name, or a template with the arguments' positions in braces."""

    results: Any
    call: str
    args: tuple[Any, ...]
    settings: tuple[tuple[str, Any], ...] = ()
    blocks: tuple[Block, ...] = ()

    @cached_property
    def defines(self) -> tuple[str, ...]:
        """The names that it binds."""
        return tuple(names_of(self.results))

    @cached_property
    def reads(self) -> frozenset[str]:
        """The names that it reads, including names that its functions capture."""
        found = {x.name for x in leaves((self.args, tuple(v for _, v in self.settings))) if isinstance(x, Ref)}
        for block in self.blocks:
            found |= captures(block)
        return frozenset(found)


@dataclass(frozen=True)
class Program:
    """A function of arrays, and the arrays."""

    inputs: tuple[Input, ...]
    body: Block

    @classmethod
    def of(cls, inputs: Sequence[Input], steps: Sequence[Step], results: Sequence[str]) -> Program:
        """The program without steps that its results do not depend on."""
        kept = live_steps(steps, results)
        read = set(results).union(*(step.reads for step in kept))
        needed = tuple(x for x in inputs if x.name in read)
        return cls(needed, Block(tuple(x.name for x in needed), kept, tuple(results)))

    def calls(self) -> Iterator[str]:
        """Names of the functions that it calls, in blocks too."""
        for step in walk(self.body.steps):
            yield step.call


def walk(steps: Sequence[Step]) -> Iterator[Step]:
    """Yields all steps, also steps of blocks."""
    for step in steps:
        yield step
        for block in step.blocks:
            yield from walk(block.steps)


def live_steps(steps: Sequence[Step], results: Sequence[str]) -> tuple[Step, ...]:
    """The steps that results depend on, within blocks too."""
    needed, kept = set(results), []
    for step in reversed(steps):
        if needed & set(step.defines):
            pruned = replace(
                step,
                blocks=tuple(replace(b, steps=live_steps(b.steps, tuple(names_of(b.results)))) for b in step.blocks),
            )
            needed |= pruned.reads
            kept.append(pruned)
    return tuple(reversed(kept))


def leaves(x: Any) -> Iterator[Any]:
    """Yields the leaves of nested tuples and lists."""
    if isinstance(x, (tuple, list)):
        for part in x:
            yield from leaves(part)
    elif isinstance(x, Code):
        yield from leaves(x.args)
    else:
        yield x


def names_of(x: Any) -> Iterator[str]:
    """The names in nested tuples."""
    return leaves(x)


def captures(block: Block) -> set[str]:
    """The names that a block reads of those around it."""
    bound = set(names_of(block.params))
    read: set[str] = set()
    for step in block.steps:
        read |= step.reads - bound
        bound |= set(step.defines)
    return read | (set(names_of(block.results)) - bound)


def rename(x: Any, change: Callable[[str], str]) -> Any:
    """A step, or a part of one, that reads other names."""
    if isinstance(x, Ref):
        return Ref(change(x.name))
    if isinstance(x, (tuple, list)):
        return type(x)(rename(part, change) for part in x)
    if isinstance(x, Code):
        return replace(x, args=rename(x.args, change))
    if isinstance(x, Step):
        blocks = tuple(rename(block, change) for block in x.blocks)
        settings = tuple((name, rename(value, change)) for name, value in x.settings)
        return replace(x, args=rename(x.args, change), settings=settings, blocks=blocks)
    if isinstance(x, Block):
        return replace(x, steps=rename(x.steps, change), results=rename_names(x.results, change))
    return x


def rename_names(x: Any, change: Callable[[str], str]) -> Any:
    """Nested tuples of other names."""
    return tuple(rename_names(part, change) for part in x) if isinstance(x, tuple) else change(x)


# -- source --------------------------------------------------------------------------------------------------------------


def program_source(program: Program, name: str = "program") -> str:
    """The source of the function."""
    return "\n".join(_function(program.body, name))


def inputs_source(program: Program, name: str = "inputs") -> str:
    """The source of `inputs(k)`, which returns the k-th set of inputs."""
    lines = [f"        {x.source()}," for x in program.inputs]
    return "\n".join([f"def {name}(k=0):", "    return (", *lines, "    )"])


def step_source(step: Step) -> str:
    """The source of a step."""
    return "\n".join(_step(step))


def _function(block: Block, name: str) -> list[str]:
    params, unpacked = [], []
    for i, param in enumerate(block.params):
        if isinstance(param, tuple):
            params.append(f"arg{i}")
            unpacked.append(f"{_names(param)} = arg{i}")
        else:
            params.append(param)
    lines = [*unpacked, *(line for step in block.steps for line in _step(step)), f"return {_names(block.results)}"]
    return [f"def {name}({', '.join(params)}):", *(f"    {line}" for line in lines)]


def _step(step: Step) -> list[str]:
    names = [f"f_{step.defines[0]}_{i}" for i in range(len(step.blocks))]
    lines = [line for block, name in zip(step.blocks, names, strict=True) for line in _function(block, name)]
    args = [_argument(x, names) for x in step.args]
    settings = [f"{name}={_argument(value, names)}" for name, value in step.settings]
    call = (
        step.call.format(*args, **{name: _argument(value, names) for name, value in step.settings})
        if "{" in step.call
        else f"{step.call}({', '.join([*args, *settings])})"
    )
    return [*lines, f"{_names(step.results)} = {call}"]


def _names(x: Any) -> str:
    if isinstance(x, tuple):
        return f"({', '.join(map(_names, x))}{',' if len(x) == 1 else ''})"
    return str(x)


def _argument(x: Any, functions: Sequence[str]) -> str:
    if isinstance(x, tuple):
        return f"({', '.join(_argument(part, functions) for part in x)}{',' if len(x) == 1 else ''})"
    if isinstance(x, list):
        return f"[{', '.join(_argument(part, functions) for part in x)}]"
    if isinstance(x, Ref):
        return x.name
    if isinstance(x, Function):
        return functions[x.position]
    if isinstance(x, Code):
        return x.text.format(*(_argument(part, functions) for part in x.args)) if x.args else x.text
    if isinstance(x, np.dtype):
        return f"np.dtype({x.name!r})"
    if isinstance(x, float) and not np.isfinite(x):
        return f"float({str(x)!r})"
    return repr(x.item() if isinstance(x, np.generic) else x)
