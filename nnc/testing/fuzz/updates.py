"""Updates and readings at indices: every method of `.at`, in every mode, with indices that repeat or lie outside."""

from __future__ import annotations

from functools import partial
from typing import Any

from nnc.base import dtypes
from nnc.commands.index import GATHER_MODES, SCATTER_MODES
from nnc.graph import TensorSpec
from nnc.testing.fuzz.offer import Call, Offer, Source
from nnc.testing.fuzz.program import Code
from nnc.testing.fuzz.weak import number_for

_METHODS = ("set", "add", "subtract", "multiply", "divide", "min", "max", "power")


def update_offers() -> list[Offer]:
    """Updates and readings."""
    methods = [Offer(f".at.{m}", partial(_update, method=m), 6.0) for m in _METHODS]
    return [
        *methods,
        Offer(".at.add", partial(_update, method="add"), 12.0),
        Offer(".at.get", _reading, 10.0),
        Offer(".at.apply", _applied, 4.0),
    ]


def slices_text(source: Source, spec: TensorSpec) -> str:
    """An index of slices, integers, lists, `None` and ellipses."""
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


def _index(source: Source, spec: TensorSpec, modes: tuple[str, ...]) -> tuple[Any, str, int | None]:
    """An index, the mode that it needs, and how many rows it names, if they are of one axis."""
    rng = source.rng
    if not spec.ndim or not spec.shape[0] or rng.random() < 0.4:
        return Code(slices_text(source, spec)), "error", None
    n = spec.shape[0]
    outside = rng.random() < 0.6
    least, most = (-n - 3, n + 3) if outside else (-n, n - 1)
    mode = rng.choice([m for m in modes if m != "error"] if outside else modes)
    count = rng.randint(1, 6)
    places = [rng.randint(least, most) for _ in range(count)]
    if rng.random() < 0.5:
        places[-1] = places[0]
    if rng.random() < 0.5:
        return Code(f"np.array({places})"), mode, count
    at = source.pick(lambda other: other.dtype.name in ("int32", "int64", "int8", "int16") and other.ndim == 1)
    found = source.spec(at)
    if found.ndim != 1 or found.dtype.name not in ("int32", "int64", "int8", "int16"):
        return Code(f"nnp.asarray({places})"), mode, count
    return Code("{0}", (at,)), mode if mode != "error" else "clip", found.shape[0]


def _values(source: Source, spec: TensorSpec, count: int | None) -> Any:
    if source.rng.random() < 0.4:
        return number_for(source, spec)
    shapes: tuple[tuple[int, ...], ...] = ((), spec.shape[1:], spec.shape[-1:])
    if count is not None:
        shapes = (*shapes, (count, *spec.shape[1:]))
        if source.rng.random() < 0.5:
            return source.like(TensorSpec((count, *spec.shape[1:]), spec.dtype))
    return source.pick(lambda other: other.dtype == spec.dtype and other.shape in shapes)


def _options(source: Source, mode: str) -> tuple[tuple[str, Any], ...]:
    return (("mode", mode),) if mode != "error" or source.rng.random() < 0.2 else ()


def _update(source: Source, method: str) -> Call:
    x = source.pick()
    spec = source.spec(x)
    index, mode, count = _index(source, spec, SCATTER_MODES)
    value = _values(source, spec, count)
    if method == "power":
        value = source.rng.choice((2, 3, 0.5))
    options = "".join(f", {name}={value!r}" for name, value in _options(source, mode))
    return f"{{0}}.at[{{1}}].{method}({{2}}{options})", (x, index, value), ()


def _reading(source: Source) -> Call:
    x = source.pick()
    spec = source.spec(x)
    index, mode, _ = _index(source, spec, GATHER_MODES)
    if mode == "fill" and source.rng.random() < 0.5:
        return "{0}.at[{1}].get(mode='fill', fill_value={2})", (x, index, number_for(source, spec)), ()
    options = ", ".join(f"{name}={value!r}" for name, value in _options(source, mode))
    return f"{{0}}.at[{{1}}].get({options})", (x, index), ()


def _applied(source: Source) -> Call:
    x = source.pick(lambda spec: not dtypes.is_bool(spec.dtype))
    index, mode, _ = _index(source, source.spec(x), tuple(m for m in SCATTER_MODES if m in GATHER_MODES))
    return f"{{0}}.at[{{1}}].apply(lambda x: 2 * x, mode={mode!r})", (x, index), ()
