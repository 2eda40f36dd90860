"""Functions mapped over named axes, up to three deep, with collectives and rules within.

The generator grows a function on the values of the first row, as if all rows had them; by references the rows run in lockstep.
"""

from __future__ import annotations

from typing import Any

from nnc.base import dtypes
from nnc.graph import TensorSpec
from nnc.testing.fuzz.control import grown, within
from nnc.testing.fuzz.offer import Call, Offer, Source
from nnc.testing.fuzz.program import Block, Function, Step

NAMES = ("i", "j", "k")  # by depth
_KINDS = (
    "psum", "psum", "pmean", "pmean", "pmax", "pmin", "axis_index", "axis_index", "pvary", "all_gather", "ppermute", "psum_scatter",
    "all_to_all",
)  # fmt: skip
_MOST_PLACES = 24  # of all axes together: by references each is a thread


def named(g: Any) -> Step | None:
    """`nnc.vmap` of a function over a named axis; within it the next step may be mapped over another one."""
    if len(g.axes) == len(NAMES):
        return None
    most = _MOST_PLACES // max(1, _product(g.axes.values()))

    def fits(spec: TensorSpec) -> bool:
        return spec.ndim >= 1 and 1 <= spec.shape[0] <= min(5, most)

    first = g.pick(fits)
    if not fits(g.spec(first)):
        return None
    size = g.spec(first).shape[0]
    operands = [first]
    axes: list[int | None] = [0]
    for _ in range(g.rng.randint(0, 2)):
        x = g.pick()
        operands.append(x)
        axes.append(0 if g.spec(x).shape[:1] == (size,) and g.rng.random() < 0.6 else None)
    name = NAMES[len(g.axes)]
    values = [g.scope[x.name] if a is None else g.scope[x.name][0] for x, a in zip(operands, axes, strict=True)]
    mapped, g.is_mapped = g.is_mapped, True
    if not g.axes:
        g.common = set(g.visible)
    with within(g, {**g.axes, name: size}):
        params, steps = grown(g, values, share=0.9, most=4)
        with_rule = g.forced("custom") if g.rng.random() < 0.7 else None
        steps += [with_rule] if with_rule is not None else []
        inner = g.forced("named") if g.rng.random() < 0.5 else None
        steps += [inner] if inner is not None else []
    g.is_mapped = mapped
    own = [*(n for step in reversed(steps) for n in step.defines), *params]
    ruled = with_rule.defines if with_rule is not None else ()
    others = list(dict.fromkeys([own[0], *ruled, *(g.rng.choice(own) for _ in range(g.rng.randint(0, 2)))]))
    block = Block(tuple(params), tuple(steps), tuple(others))
    places = ", ".join(f"{{{i + 1}}}" for i in range(len(operands)))
    call = f"nnc.vmap({{0}}, in_axes={tuple(axes)}, axis_name={name!r})({places})"
    return Step(tuple(g.name() for _ in others), call, (Function(0), *operands), (), (block,))


def _product(sizes: Any) -> int:
    total = 1
    for n in sizes:
        total *= n
    return total


def collective_offers() -> list[Offer]:
    """Collectives, which are called within named axes alone."""
    return [Offer("nnc.psum", _collective)]


def _collective(source: Source) -> Call | None:
    """A collective over an axis, or two."""
    rng, axes = source.rng, source.axes
    if not axes:
        return None
    name = rng.choice(list(axes))
    size = axes[name]
    several: Any = tuple(axes) if len(axes) > 1 and rng.random() < 0.3 else name
    kind = rng.choice(_KINDS)
    if kind == "axis_index":
        x = source.pick(lambda spec: not dtypes.is_bool(spec.dtype))
        return "{0} * nnc.axis_index({1})", (x, several), ()
    if kind in ("psum", "pmean", "pvary"):
        return f"nnc.{kind}", (source.pick(lambda spec: not dtypes.is_bool(spec.dtype)), several), ()
    if kind in ("pmax", "pmin"):
        return f"nnc.{kind}", (source.pick(lambda spec: not dtypes.is_complex(spec.dtype)), several), ()
    if kind == "all_gather":
        x = source.pick()
        tiled = bool(source.spec(x).ndim) and rng.random() < 0.5
        axis = rng.randrange(source.spec(x).ndim + (not tiled))
        return "nnc.all_gather", (x, name), (("axis", axis), ("tiled", tiled))
    if kind == "ppermute":
        count = rng.randint(0, size)
        perm = list(zip(rng.sample(range(size), count), rng.sample(range(size), count), strict=True))
        return "nnc.ppermute", (source.pick(), name, perm), ()
    x = source.pick(lambda spec: any(n and n % size == 0 for n in spec.shape))
    spec = source.spec(x)
    places = [i for i, n in enumerate(spec.shape) if n and n % size == 0]
    if not places:
        return None
    axis = rng.choice(places)
    tiled = spec.shape[axis] != size or rng.random() < 0.5
    if kind == "psum_scatter":
        return "nnc.psum_scatter", (x, name), (("scatter_dimension", axis), ("tiled", tiled))
    return "nnc.all_to_all", (x, name, axis, rng.randrange(spec.ndim)), (("tiled", tiled),)
