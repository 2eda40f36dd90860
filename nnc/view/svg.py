"""Text of SVG: elements, with every text escaped, and scales with round marks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

# characters that XML 1.0 cannot hold, not even escaped; lone surrogates have no UTF-8 either
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
CHARACTER = 0.6  # width of a character of a monospaced font, over its size


def clean(text: str) -> str:
    """`text` as the content of an element; names and lines of users may hold anything."""
    return escape(_FORBIDDEN.sub("\ufffd", text))


def element(name: str, content: str | Iterable[str] = (), **attributes: object) -> str:
    r"""Returns an element around `content`, which is SVG already; attributes of None are left out, `_` in their names is `-`.

    Example:
        >>> from nnc.view.svg import element
        >>> element("text", "x", x=1.50, font_size=9, cls='"')
        '<text x="1.5" font-size="9" class=\'"\'>x</text>'
    """
    parts = [name]
    for key, value in attributes.items():
        if value is not None:
            shown = number(value) if isinstance(value, float) else _FORBIDDEN.sub("\ufffd", str(value))
            parts.append(f"{'class' if key == 'cls' else key.replace('_', '-')}={quoteattr(shown)}")
    inside = content if isinstance(content, str) else "".join(content)
    return f"<{' '.join(parts)}>{inside}</{name}>" if inside else f"<{' '.join(parts)}/>"


def label(text: str, x: float, y: float, **attributes: object) -> str:
    """Returns a line of text."""
    return element("text", clean(text), x=x, y=y, **attributes)


def title(text: str) -> str:
    """Returns the text that is shown when the pointer rests on the element that holds it."""
    return element("title", clean(text))


def number(value: float) -> str:
    """Returns a coordinate, to a hundredth."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def shorten(text: str, width: float, size: float) -> str:
    """Returns the part of `text` that fits into `width` at a font of that size; nothing where that is hardly a word."""
    room = int(width / (CHARACTER * size) + 1e-6)
    if len(text) <= room:
        return text
    return text[: room - 1] + "…" if room > 3 else ""


def document(
    content: Iterable[str],
    width: float,
    height: float,
    style: str,
    name: str,
    *,
    margin: float = 0.0,
    **attributes: object,
) -> str:
    """Returns a whole picture: `content`, which takes width × height, with a margin around it."""
    corner = number(-margin) if margin else "0"
    size = width + 2 * margin, height + 2 * margin
    return element(
        "svg",
        (title(name), element("style", clean(style)), *content),
        xmlns="http://www.w3.org/2000/svg",
        width=size[0],
        height=size[1],
        viewBox=f"{corner} {corner} {number(size[0])} {number(size[1])}",
        cls="nnc-picture",
        font_family="DejaVu Sans Mono, Menlo, Consolas, monospace",
        font_size=11,
        **attributes,
    )


def steps_of_color(names: Iterable[str]) -> dict[str, str]:
    """Returns a light colour for each name; neighbours in the order of appearance are far apart (steps by the golden ratio)."""
    return {name: f"hsl({round(i * 222.492) % 360} 60% 78%)" for i, name in enumerate(dict.fromkeys(names))}


@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers from 0 to `end` on a line from `first` to `last`."""

    end: float
    first: float
    last: float

    def __call__(self, value: float) -> float:
        """Returns the place of a number."""
        return self.first + (self.last - self.first) * value / self.end

    def marks(self, count: int, base: float = 10) -> Sequence[float]:
        """About so many round numbers: 1, 2 or 5 times a power of ten; powers of two for a base of 2."""
        least = self.end / max(count, 1)
        unit = base ** math.floor(math.log(least, base))
        step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= least * (1 - 1e-9))
        return [i * step for i in range(math.floor(self.end / step) + 1)]
