"""Second derivatives within programs, by themselves and in each iteration of a loop."""

from __future__ import annotations

from typing import Any

from nnc.testing.fuzz.control import grown, within
from nnc.testing.fuzz.custom import is_smooth
from nnc.testing.fuzz.program import Block, Function, Step

_LOSS = "(lambda y: nnp.sum({0}(y)[0]))"
_SECOND = f"nnc.grad(lambda x: nnp.sum(nnc.grad({_LOSS})(x) ** 2))"
_CALLS = (
    f"{_SECOND}({{1}})",
    f"nnc.jvp(nnc.grad({_LOSS}), ({{1}},), ({{2}},))[1]",
    f"nnc.hvp({_LOSS}, ({{1}},), ({{2}},))[0]",
    f"nnc.scan(lambda c, _: (c - 0.01 * {_SECOND}(c), nnp.sum(c)), {{1}}, None, 3)[0]",
    f"nnc.fori_loop(0, 2, lambda i, c: 0.5 * c + nnc.jvp(nnc.grad({_LOSS}), (c,), ({{2}},))[1], {{1}})",
    f"nnc.vmap(lambda r: {_SECOND}({{1}} * r))(nnp.ones(2, {{1}}.dtype))",
)


def second_derivative(g: Any) -> Step | None:
    """A second derivative of a function of one value."""
    x = g.pick(is_smooth)
    if not is_smooth(g.spec(x)):
        return None
    other = g.like(g.spec(x))
    with within(g, {}):
        params, steps = grown(g, [g.scope[x.name]], captures=False)
    own = [*params, *(name for step in steps for name in step.defines)]
    floats = [name for name in own if is_smooth(g.scope[name].spec)]
    block = Block(tuple(params), tuple(steps), (floats[-1],))
    call = g.rng.choice(_CALLS)
    args = (Function(0), x, other) if "{2}" in call else (Function(0), x)
    return Step("result", call, args, (), (block,))
