"""Everything that a program can call; the commands of the registry among it."""

from __future__ import annotations

import inspect
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from nnc.graph import COMMANDS, Command, TensorSpec, infer
from nnc.graph.registry import effect
from nnc.testing.fuzz.examples.tables import EXAMPLES
from nnc.testing.fuzz.offer import SORTED, Call, Offer, Source, sorted_rows
from nnc.testing.fuzz.operators import operator_offers
from nnc.testing.fuzz.program import Ref
from nnc.testing.fuzz.public import public_offers
from nnc.testing.fuzz.settings import SKIP, draw_setting
from nnc.testing.fuzz.updates import update_offers
from nnc.testing.fuzz.weak import weak_offers
from nnc.testing.fuzz.wild import wild_offers


def all_offers() -> list[Offer]:
    """Everything that a program can call."""
    return [*command_offers(), *public_offers(), *operator_offers(), *update_offers(), *weak_offers(), *wild_offers()]


def command_offers() -> list[Offer]:
    """An offer for each command whose operands and parameters are known how to draw."""
    return [Offer(name, partial(_command_call, target=c)) for name, c in COMMANDS.items() if _is_callable(c)]


def _is_callable(target: Command) -> bool:
    if target.name in EXAMPLES:
        return True
    if target not in infer or (target in effect and effect[target] != "random"):
        return False
    return all(p.name not in ("graphs", "function") for p in inspect.signature(infer[target]).parameters.values())


def _command_call(source: Source, target: Command) -> Call | None:
    call = f'command("{target.name}")'
    if target.name in EXAMPLES:
        operands, params = EXAMPLES[target.name](np.random.default_rng(source.rng.randrange(2**32)))
        return call, tuple(_operand(source, x) for x in operands), tuple(params.items())
    operands = _operands(source, target)
    settings = []
    for p in inspect.signature(infer[target]).parameters.values():
        if p.kind is not inspect.Parameter.KEYWORD_ONLY or (p.default is not p.empty and source.rng.random() < 0.5):
            continue
        value = draw_setting(source.rng, p.name, str(p.annotation).strip("'"), [source.spec(x) for x in operands])
        if value is not SKIP:
            settings.append((p.name, value))
        elif p.default is p.empty:
            return None
    names = [p.name for p in inspect.signature(infer[target]).parameters.values()]
    args = [sorted_rows(x) if name in SORTED else x for x, name in zip_longest(operands, names[: len(operands)])]
    return call, tuple(args), tuple(settings)


def _operands(source: Source, target: Command) -> tuple[Ref, ...]:
    """Operands of one spec, as most commands want, or of one shape."""
    count = target.arity if target.arity is not None else source.rng.randint(1, 3)
    if not count:
        return ()
    first = source.pick()
    found, spec = [first], source.spec(first)
    for _ in range(count - 1):
        other = source.spec(source.pick()).dtype if source.rng.random() < 0.2 else spec.dtype
        found.append(source.like(TensorSpec(spec.shape, other)))
    if count > 1 and source.rng.random() < 0.5:
        found.reverse()
    return tuple(found)


def _operand(source: Source, x: Any) -> Ref:
    """An operand that an example gives: an array as it is, a spec by any value."""
    return source.like(x) if isinstance(x, TensorSpec) else source.given(x)
