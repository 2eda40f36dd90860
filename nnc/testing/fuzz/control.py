"""Loops, branches and transforms around generated functions, nested in one another.

A function is grown on the values of its first call. It carries on any value of the right spec: a new one, or another carried one,
so that values are swapped and rotated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import nnc
from nnc.base import dtypes
from nnc.graph import TensorSpec
from nnc.testing.fuzz.program import Block, Code, Function, Ref, Step

Maker = Callable[[Any], Step | None]  # of a Generator


def grown(
    g: Any, values: Sequence[Any], captures: bool = True, share: float = 0.7, most: int = 3
) -> tuple[list[str], list[Step]]:
    """The names of parameters that have these values at first, and steps on them; without `captures`, on nothing else."""
    outer, open_before = list(g.visible), g.is_open
    params = [g.name() for _ in values]
    for name, value in zip(params, values, strict=True):
        g.scope[name] = value
    g.visible = [*(outer if captures and g.rng.random() < share else []), *params]
    g.is_open = open_before and captures
    try:
        return params, g.steps(g.rng.randint(0, most))
    finally:
        g.is_open = open_before


def of_spec(g: Any, spec: TensorSpec, fallback: str, own: Sequence[str]) -> str:
    """Returns the name of a value of a spec, of the function's own values or arguments, if there are any."""
    fitting = [name for name in g.visible if g.scope[name].spec == spec]
    mine = [name for name in fitting if name in own]
    return str(g.rng.choice(mine or fitting or [fallback]))


def body(
    g: Any, values: Sequence[Any], carried: int, extra: int
) -> tuple[list[str], tuple[Step, ...], list[str], list[str]]:
    """A function of `values` that returns new values for the first `carried` of them, and `extra` others."""
    params, steps = grown(g, values)
    own = [*params, *(name for step in steps for name in step.defines)]
    after = [of_spec(g, g.scope[name].spec, name, own) for name in params[:carried]]
    others = [g.rng.choice(own) for _ in range(extra)]
    return params, tuple(steps), after, others


def carry(g: Any) -> list[Ref]:
    """Values to carry, some of one spec."""
    first = g.pick()
    found = [first]
    for _ in range(g.rng.randint(0, 3)):
        found.append(g.like(g.spec(first)) if g.rng.random() < 0.7 else g.pick())
    return found


def fori_loop(g: Any) -> Step | None:
    """`nnc.fori_loop` of a few iterations, which may read their number."""
    init = carry(g)
    number = nnc.asarray(np.int64(0))
    params, steps, after, _ = body(g, [*(g.scope[x.name] for x in init), number], len(init), 0)
    block = Block((params[-1], tuple(params[:-1])), steps, tuple(after))
    lower = g.rng.randint(0, 2)
    args = (lower, lower + g.rng.choice((0, 1, 2, 3, 5)), Function(0), tuple(init))
    return Step(tuple(g.name() for _ in init), "nnc.fori_loop", args, (), (block,))


def while_loop(g: Any) -> Step | None:
    """`nnc.while_loop` that counts."""
    init = carry(g)
    params, steps, after, _ = body(g, [g.scope[x.name] for x in init], len(init), 0)
    count, again = g.name(), g.name()
    increment = Step(again, "{0} + {1}", (Ref(count), 1))
    block = Block(((count, *params),), (*steps, increment), (again, *after))
    test, flag = [g.name() for _ in init], g.name()
    n = g.name()
    condition = Block(((n, *test),), (Step(flag, "{0} < {1}", (Ref(n), g.rng.choice((0, 1, 2, 4)))),), flag)
    settings = (("max_steps", 5),) if g.rng.random() < 0.5 else ()
    results = (g.name(), *(g.name() for _ in init))
    return Step(
        results,
        "nnc.while_loop",
        (Function(0), Function(1), (Code("nnp.int32(0)"), *init)),
        settings,
        (condition, block),
    )


def scan(g: Any) -> Step | None:
    """`nnc.scan` over the rows of some values."""
    rows = [g.pick(lambda spec: spec.ndim >= 1 and 1 <= spec.shape[0] <= 5)]
    length = g.spec(rows[0]).shape[:1]
    if not length or not 1 <= length[0] <= 5:
        return None
    if g.rng.random() < 0.4:
        rows.append(g.pick(lambda spec: spec.shape[:1] == length))
    rows = [x for x in rows if g.spec(x).shape[:1] == length]
    init = carry(g)
    values = [*(g.scope[x.name] for x in init), *(g.scope[x.name][0] for x in rows)]
    params, steps, after, others = body(g, values, len(init), g.rng.randint(0, 2))
    block = Block((tuple(params[: len(init)]), tuple(params[len(init) :])), steps, (tuple(after), tuple(others)))
    settings = (("reverse", True),) if g.rng.random() < 0.3 else ()
    results = (tuple(g.name() for _ in init), tuple(g.name() for _ in others))
    return Step(results, "nnc.scan", (Function(0), tuple(init), tuple(rows)), settings, (block,))


def branches(g: Any, operands: Sequence[Ref], count: int) -> tuple[tuple[Block, ...], int]:
    """Functions of the same operands with results of the same specs."""
    values, outer = [g.scope[x.name] for x in operands], list(g.visible)
    params, steps, _, _ = body(g, values, 0, 0)
    own = [*params, *(name for step in steps for name in step.defines)]
    results = [g.rng.choice(own) for _ in range(g.rng.randint(1, 3))]
    blocks = [Block(tuple(params), tuple(steps), tuple(results))]
    specs = [g.scope[name].spec for name in results]
    for _ in range(count - 1):
        g.visible = list(outer)
        params, steps, _, _ = body(g, values, 0, 0)
        own = [*params, *(name for step in steps for name in step.defines)]
        fits = [[n for n in (*own, *g.visible) if g.scope[n].spec == spec] for spec in specs]
        found, fillers = [], []
        for spec, names in zip(specs, fits, strict=True):
            if names:
                found.append(g.rng.choice(names))
                continue
            name = g.name()
            fillers.append(Step(name, "nnp.full", (spec.shape, 1, spec.dtype)))
            found.append(name)
        blocks.append(Block(tuple(params), (*steps, *fillers), tuple(found)))
    return tuple(blocks), len(specs)


def condition(g: Any) -> tuple[Ref, dict[str, int]]:
    """A value to decide by, and the named axes over which all places decide alike: these may have collectives in branches."""

    def accepts(spec: TensorSpec) -> bool:
        return bool(spec.size >= 1 and not dtypes.is_complex(spec.dtype))

    common = [name for name in g.visible if name in g.common and accepts(g.scope[name].spec)]
    if g.axes and common and g.rng.random() < 0.6:
        return Ref(g.rng.choice(common)), dict(g.axes)
    return g.pick(accepts), {}


@contextmanager
def within(g: Any, axes: dict[str, int]) -> Iterator[None]:
    """A block in which these are the named axes."""
    outer = dict(g.axes)
    g.enter(axes)
    try:
        yield
    finally:
        g.enter(outer)


def cond(g: Any) -> Step | None:
    """`nnc.cond` on a value that is known when it runs."""
    operands = carry(g)
    x, axes = condition(g)
    with within(g, axes):
        blocks, count = branches(g, operands, 2)
    pred = Code(f"nnp.ravel({{0}})[0] > {g.rng.choice((0, 1))}", (x,))
    return Step(_names(g, count), "nnc.cond", (pred, Function(0), Function(1), *operands), (), blocks)


def switch(g: Any) -> Step | None:
    """`nnc.switch` on a value that is known when it runs."""
    operands = carry(g)
    x, axes = condition(g)
    number = g.rng.randint(1, 3)
    with within(g, axes):
        blocks, count = branches(g, operands, number)
    index = Code("(nnp.ravel({0})[0] > 0).astype('int32')", (x,))
    args = (index, [Function(i) for i in range(number)], *operands)
    return Step(_names(g, count), "nnc.switch", args, (("mode", "clip"),), blocks)


def _names(g: Any, count: int) -> Any:
    return tuple(g.name() for _ in range(count))


def vmap(g: Any) -> Step | None:
    """`nnc.vmap` of a function, within the program."""
    operands = [g.pick(lambda spec: spec.ndim >= 1 and 1 <= spec.shape[0] <= 5)]
    size = g.spec(operands[0]).shape[:1]
    if not size or not 1 <= size[0] <= 5:
        return None
    operands.append(g.pick())
    axes = (0, 0 if g.spec(operands[1]).shape[:1] == size and g.rng.random() < 0.6 else None)
    values = [g.scope[x.name] if a is None else g.scope[x.name][0] for x, a in zip(operands, axes, strict=True)]
    mapped, g.is_mapped = g.is_mapped, True
    try:
        params, steps, _, others = body(g, values, 0, g.rng.randint(1, 2))
    finally:
        g.is_mapped = mapped
    block = Block(tuple(params), steps, tuple(others))
    call = f"nnc.vmap({{0}}, in_axes={axes})({{1}}, {{2}})"
    return Step(tuple(g.name() for _ in others), call, (Function(0), *operands), (), (block,))


def called(wrapper: str) -> Maker:
    """A function that is called through a transform."""

    def make(g: Any) -> Step | None:
        operands = carry(g)
        params, steps, _, others = body(g, [g.scope[x.name] for x in operands], 0, g.rng.randint(1, 3))
        block = Block(tuple(params), steps, tuple(others))
        places = ", ".join(f"{{{i + 1}}}" for i in range(len(operands)))
        return Step(
            tuple(g.name() for _ in others), f"{wrapper}({{0}})({places})", (Function(0), *operands), (), (block,)
        )

    return make


def twice(g: Any) -> Step | None:
    """Makes a function that is called twice on values of the same specs: the first recording must not be taken for the other
    call.
    """
    operands = carry(g)
    second = [g.like(g.spec(x)) for x in operands]
    params, steps, _, others = body(g, [g.scope[x.name] for x in operands], 0, g.rng.randint(1, 3))
    block = Block(tuple(params), steps, tuple(others))
    first = ", ".join(f"{{{i + 1}}}" for i in range(len(operands)))
    again = ", ".join(f"{{{i + 1 + len(operands)}}}" for i in range(len(operands)))
    names = tuple(g.name() for _ in range(2 * len(others)))
    return Step(names, f"(*{{0}}({first}), *{{0}}({again}))", (Function(0), *operands, *second), (), (block,))


CONTROL: tuple[Maker, ...] = (
    fori_loop, while_loop, scan, cond, switch, vmap, called("nnc.compile"), called("nnc.checkpoint"), twice,
)  # fmt: skip
