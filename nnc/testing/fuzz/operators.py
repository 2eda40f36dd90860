"""Calls of operators, with Python numbers among the operands; indexing and updates."""

from __future__ import annotations

from functools import partial
from typing import Any

from nnc.graph import TensorSpec
from nnc.testing.fuzz.offer import Call, Offer, Source, related
from nnc.testing.fuzz.program import Code
from nnc.testing.fuzz.settings import draw_setting

_BINARY = ("{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / {1}", "{0} // {1}", "{0} % {1}", "{0} < {1}", "{0} >= {1}", "{0} == {1}",
           "{0} & {1}", "{0} | {1}", "{0} ^ {1}")  # fmt: skip


def operator_offers() -> list[Offer]:
    """Operators, indexing and updates: together they are about a third of all calls."""
    binary = [Offer(text, partial(_operator_call, text=text), 40.0) for text in _BINARY[:4]]
    binary += [Offer(text, partial(_operator_call, text=text), 6.0) for text in _BINARY[4:]]
    return [
        *binary,
        Offer("{0} @ {1}", _matmul_call, 25.0),
        Offer("{0}[{1}]", _index_call, 35.0),
        Offer("{0}.at[{1}].set({2})", partial(_update_call, method="set"), 15.0),
        Offer("{0}.at[{1}].add({2})", partial(_update_call, method="add"), 15.0),
        Offer("{0}.astype", _astype_call, 15.0),
        Offer("{0} ** n", _power_call, 12.0),
    ]


def _power_call(source: Source) -> Call:
    return f"{{0}} ** {source.rng.randint(0, 3)}", (source.pick(),), ()


def _operator_call(source: Source, text: str) -> Call:
    first = source.pick()
    if source.rng.random() < 0.35:
        number = source.rng.choice((1, 2, 3, -1, 0.5, 2.0, -0.25, True))
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


def _index_text(source: Source, spec: TensorSpec) -> str:
    """An index of slices, integers, `None` and ellipses."""
    rng, parts = source.rng, []
    for n in spec.shape[: rng.randint(0, spec.ndim)]:
        turn = rng.random()
        if turn < 0.3 and n:
            parts.append(str(rng.randrange(-n, n)))
        elif turn < 0.6:
            start, stop = sorted((rng.randint(0, n), rng.randint(0, n)))
            parts.append(f"{start}:{stop}:{rng.choice((1, 1, 2, 3))}")
        elif turn < 0.75:
            parts.append(f"::{rng.choice((-1, -2, 2, -3))}")
        elif turn < 0.85 and n:
            parts.append(str([rng.randrange(n) for _ in range(rng.randint(1, 4))]))
        else:
            parts.append(":")
        if rng.random() < 0.1:
            parts.append("None")
    if rng.random() < 0.2 or not parts:
        parts.append("...")
    return ", ".join(parts)


def _index_call(source: Source) -> Call:
    x = source.pick()
    return "{0}[{1}]", (x, Code(_index_text(source, source.spec(x)))), ()


def _update_call(source: Source, method: str) -> Call:
    x = source.pick()
    spec = source.spec(x)
    value: Any = source.pick(lambda other: other.dtype == spec.dtype and other.ndim <= 1)
    if source.rng.random() < 0.5:
        value = source.rng.choice((0, 1, 2.5, -1))
    return f"{{0}}.at[{{1}}].{method}({{2}})", (x, Code(_index_text(source, spec)), value), ()


def _astype_call(source: Source) -> Call:
    value = draw_setting(source.rng, "dtype", "", [])
    return "{0}.astype({1})", (source.pick(), value), ()
