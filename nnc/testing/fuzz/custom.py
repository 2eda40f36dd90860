"""Functions with derivative rules of their own: rules that no formula gives, with residuals, trees and static arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import nnc
from nnc.base import dtypes
from nnc.graph import TensorSpec
from nnc.testing.fuzz.control import grown
from nnc.testing.fuzz.program import Block, Code, Function, Ref, Step, rename, rename_names, walk

_SCALES = ("1.5", "nnp.tanh(nnp.mean({0}))", "nnp.cos(nnp.sum({0}))", "nnp.abs(nnp.sum({0}))", "nnp.sum({0})")
_LINEAR_SCALES = ("1.5", "nnp.sum({0})", "-nnp.mean({0})")
# where rows share the operands, the function runs once for all of them, and its rule gets the sum of their cotangents (as in JAX)
_LINEAR = ("nnp.sum({0})", "nnp.mean({0})", "nnp.sum({0} * {1})", "3 * nnp.sum({0})")


def is_smooth(spec: TensorSpec) -> bool:
    """Whether arrays like this are differentiated here: real floats."""
    return bool(dtypes.is_float(spec.dtype))


def _operands(g: Any) -> list[Ref]:
    """Floats of one dtype, and perhaps an operand that has no derivative.

    Within named axes, operands that are the same at all places are as likely as the latest.
    """
    common = [name for name in g.visible if name in g.common and is_smooth(g.scope[name].spec)] if g.axes else []
    first = Ref(g.rng.choice(common)) if common and g.rng.random() < 0.5 else g.pick(is_smooth)
    if not is_smooth(g.spec(first)):
        return []
    dtype = g.spec(first).dtype
    found = [first]
    for _ in range(g.rng.randint(0, 2)):
        found.append(g.pick(lambda spec: spec.dtype == dtype))
    return [x for x in found if g.spec(x).dtype == dtype]


def _body(g: Any, operands: Sequence[Ref]) -> tuple[list[str], list[Step], list[str]] | None:
    """A function of these values alone: parameters, steps, and names of its results, all of them floats."""
    params, steps = grown(g, [g.scope[x.name] for x in operands], captures=False)
    if g.rng.random() < 0.25:  # a result whose value does not depend on the operands, but whose tangent does
        name = g.name()
        constant = g.accept(Step(name, "nnp.full", (g.spec(operands[0]).shape, 1.5, g.spec(operands[0]).dtype)))
        steps += [constant] if constant is not None else []
    own = [*params, *(name for step in steps for name in step.defines)]
    floats = [name for name in own if is_smooth(g.scope[name].spec)]
    latest = floats[-1:] if g.rng.random() < 0.6 else []
    return params, list(steps), list(dict.fromkeys([*latest, *g.rng.sample(floats, min(len(floats), 2))]))


def _like(g: Any, expression: str, args: tuple[Any, ...], like: str) -> Step:
    """A step that gives a scalar expression the shape and the dtype of a value, or multiplies the value by it."""
    n = len(args)
    start = f"nnp.zeros_like({{{n}}}) +" if g.rng.random() < 0.5 else f"{{{n}}} *"
    text = f"{start} ({expression}).astype({{{n}}}.dtype)"
    return Step(g.name(), text, (*args, Ref(like)))


def _places(g: Any, steps: list[Step], chance: float = 0.5) -> list[str]:
    """Adds the number of the place along a named axis, from 1 on, to the steps of a rule; the names of such numbers."""
    if not g.axes or g.rng.random() >= chance:
        return []
    name = str(g.name())
    g.scope[name] = nnc.asarray(np.int32(1))
    steps.append(Step(name, "1 + nnc.axis_index({0})", (g.rng.choice(list(g.axes)),)))
    return [name]


def _fresh(g: Any, params: Sequence[str], steps: Sequence[Step], results: Sequence[str]) -> tuple[Any, Any, Any]:
    """The same function under other names."""
    made = [*params, *(name for step in steps for name in step.defines)]
    names: dict[str, str] = {name: g.name() for name in made}
    for old, new in names.items():
        g.scope[new] = g.scope[old]

    def to(name: str) -> str:
        return names.get(name, name)

    renamed = [replace(rename(step, to), results=rename_names(step.results, to)) for step in steps]
    return [to(name) for name in params], renamed, [to(name) for name in results]


def _packed(names: Sequence[Any], tree: bool) -> tuple[Any, ...]:
    """Parameters: each by itself, or the first two as one tuple."""
    return (tuple(names[:2]), *names[2:]) if tree and len(names) > 1 else tuple(names)


def _call_text(transform: str, rules: int, operands: int, tree: bool, static: bool) -> str:
    places = [f"{{{1 + rules + i}}}" for i in range(operands)]
    if tree and operands > 1:
        places = [f"({places[0]}, {places[1]})", *places[2:]]
    if static:
        places.insert(0, f"{{{1 + rules + operands}}}")
    given = ", ".join(f"{{{i}}}" for i in range(1, rules + 1))
    options = ", nondiff_argnums=(0,)" if static else ""
    name = "defvjp" if transform == "custom_vjp" else "defjvp"
    return f"(lambda h: (h.{name}({given}), h)[1])(nnc.{transform}({{0}}{options}))({', '.join(places)})"


def _static(g: Any, steps: list[Step], results: list[str]) -> str:
    """The name of a static number, by which a result is multiplied."""
    number = str(g.name())
    g.scope[number] = 2
    at = results[-1]
    scaled = Step(g.name(), "{0} * {1}", (Ref(at), Code(number)))
    g.scope[scaled.results] = g.scope[at]
    steps.append(scaled)
    results[-1] = scaled.results
    return number


def custom_vjp(g: Any) -> Step | None:
    """`nnc.custom_vjp` with a rule that is linear in the cotangent within mapped functions alone.

    A value that a collective makes the same everywhere has one cotangent for all places (docs/distributed.md), where references
    give each row its own. `pvary` makes the results vary, so that both do.
    """
    operands = _operands(g)
    body = _body(g, operands) if operands else None
    if body is None or not body[2]:
        return None
    params, steps, results = body
    if any(step.call.startswith("nnc.p") for step in walk(steps)):
        varied = [Step(g.name(), "nnc.pvary", (Ref(name), tuple(g.axes))) for name in results]
        g.scope.update({step.results: g.scope[step.args[0].name] for step in varied})
        steps, results = [*steps, *varied], [step.results for step in varied]
    tree, static = g.rng.random() < 0.4, g.rng.random() < 0.3
    number = [_static(g, steps, results)] if static else []
    again, forward, outs = _fresh(g, params, steps, results)
    places = _places(g, forward)  # by references the backward rule runs when the rows are gone
    residuals = [*again, *outs, *places]
    kept, cts = [g.name() for _ in residuals], [g.name() for _ in outs]
    backward = []
    for name in kept[: len(params)]:
        scale = g.rng.choice(_LINEAR_SCALES if g.is_mapped else _SCALES)
        ct = g.rng.choice(cts)
        text = scale if "{0}" in scale else f"{scale} * nnp.sum({{0}})"
        factors = (Ref(ct), *map(Ref, kept[len(residuals) - len(places) :]))
        backward.append(_like(g, f"{text} * {{1}}" if places else text, factors, name))
    found = tuple(step.results for step in backward)
    blocks = (
        Block((*number, *_packed(params, tree)), tuple(steps), tuple(results)),
        Block((*number, *_packed(again, tree)), tuple(forward), (tuple(outs), tuple(residuals))),
        Block((*number, tuple(kept), tuple(cts)), tuple(backward), _packed(found, tree)),
    )
    call = _call_text("custom_vjp", 2, len(operands), tree, static)
    args = (Function(0), Function(1), Function(2), *operands, *([g.rng.choice((2, 0.5, 0.1))] if static else []))
    return Step(tuple(g.name() for _ in results), call, args, (), blocks)


def custom_jvp(g: Any) -> Step | None:
    """`nnc.custom_jvp` with a rule that is not the function's derivative."""
    operands = _operands(g)
    body = _body(g, operands) if operands else None
    if body is None or not body[2]:
        return None
    params, steps, results = body
    tree, static = g.rng.random() < 0.4, g.rng.random() < 0.3
    number = [_static(g, steps, results)] if static else []
    again, primal, outs = _fresh(g, params, steps, results)
    tangents = [g.name() for _ in again]
    places = _places(g, primal)
    moved = []
    for out in outs:
        at = g.rng.randrange(len(again))
        if g.scope[out].spec == g.scope[again[at]].spec and g.rng.random() < 0.7:
            text = "{0} * {1} * {2}.astype({0}.dtype)" if places else "{0} * {1}"
            moved.append(Step(g.name(), text, (Ref(tangents[at]), Ref(again[at]), *map(Ref, places))))
        else:
            text = g.rng.choice(_LINEAR) + (" * {3}" if places else "")
            scaled = "nnp.zeros_like({2}) + (" + text + ").astype({2}.dtype)"
            moved.append(Step(g.name(), scaled, (Ref(tangents[at]), Ref(again[at]), Ref(out), *map(Ref, places))))
    found = tuple(step.results for step in moved)
    rule = Block((*number, _packed(again, tree), _packed(tangents, tree)), (*primal, *moved), (tuple(outs), found))
    blocks = (Block((*number, *_packed(params, tree)), tuple(steps), tuple(results)), rule)
    call = _call_text("custom_jvp", 1, len(operands), tree, static)
    args = (Function(0), Function(1), *operands, *([g.rng.choice((2, 0.5, 0.1))] if static else []))
    return Step(tuple(g.name() for _ in results), call, args, (), blocks)
