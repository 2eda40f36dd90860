"""Calls of operators, with Python numbers among the operands; and indexing."""

from __future__ import annotations

from functools import partial

from nnc.testing.fuzz.offer import Call, Offer, Source, related
from nnc.testing.fuzz.program import Code
from nnc.testing.fuzz.settings import draw_setting
from nnc.testing.fuzz.updates import slices_text
from nnc.testing.fuzz.weak import number_for

_BINARY = ("{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / {1}", "{0} // {1}", "{0} % {1}", "{0} < {1}", "{0} >= {1}", "{0} == {1}",
           "{0} & {1}", "{0} | {1}", "{0} ^ {1}")  # fmt: skip


def operator_offers() -> list[Offer]:
    """Operators and indexing: together they are about a third of all calls."""
    binary = [Offer(text, partial(_operator_call, text=text), 40.0) for text in _BINARY[:4]]
    binary += [Offer(text, partial(_operator_call, text=text), 6.0) for text in _BINARY[4:]]
    return [
        *binary,
        Offer("{0} @ {1}", _matmul_call, 25.0),
        Offer("{0}[{1}]", _index_call, 35.0),
        Offer("{0}.astype", _astype_call, 15.0),
        Offer("{0} ** n", _power_call, 12.0),
    ]


def _power_call(source: Source) -> Call:
    return f"{{0}} ** {source.rng.randint(0, 3)}", (source.pick(),), ()


def _operator_call(source: Source, text: str) -> Call:
    first = source.pick()
    if source.rng.random() < 0.35:
        number = source.rng.choice((1, 2, 3, -1, 0.5, 2.0, -0.25, True))
        if source.rng.random() < 0.3:
            number = number_for(source, source.spec(first))
        return text, ((first, number) if source.rng.random() < 0.6 else (number, first)), ()
    return text, (first, related(source, source.spec(first))), ()


def _matmul_call(source: Source) -> Call:
    x = source.pick(lambda spec: spec.ndim >= 1)
    spec = source.spec(x)
    fits = source.pick(
        lambda other: (
            other.dtype == spec.dtype and other.ndim >= 1 and other.shape[max(other.ndim - 2, 0)] == spec.shape[-1]
        )
    )
    return "{0} @ {1}", (x, fits), ()


def _index_call(source: Source) -> Call:
    x = source.pick()
    return "{0}[{1}]", (x, Code(slices_text(source, source.spec(x)))), ()


def _astype_call(source: Source) -> Call:
    value = draw_setting(source.rng, "dtype", "", [])
    return "{0}.astype({1})", (source.pick(), value), ()
