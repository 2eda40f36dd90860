"""The signatures of all public functions and classes, defaults included, as lines of text.

python -m tests.docs.public_signatures        renews public_signatures.txt: read the difference before you commit it
"""

from __future__ import annotations

import enum
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nnc.scipy import stats

TEXT = Path(__file__).with_suffix(".txt")
MODULES = (
    "nnc.scipy.ndimage", "nnc.scipy.interpolate", "nnc.scipy.fft",
    "nnc", "nnc.numpy", "nnc.numpy.linalg", "nnc.numpy.fft", "nnc.random", "nnc.nn", "nnc.nn.initializers", "nnc.nn.models",
    "nnc.optim", "nnc.tree", "nnc.io", "nnc.data", "nnc.debug", "nnc.graph", "nnc.testing", "nnc.view", "nnc.scipy.special",
    "nnc.scipy.linalg", "nnc.distributed", "nnc.scipy.sparse.linalg",
    "nnc.scipy.optimize", "nnc.scipy.integrate", "nnc.optim.tree_utils",
    "nnc.optim.assignment", "nnc.optim.microbatching", "nnc.optim.perturbations", "nnc.optim.second_order",
    "nnc.scipy.signal",
    "nnc.scipy.stats",
    *(module.__name__ for _, module in inspect.getmembers(stats, inspect.ismodule) if hasattr(module, "__all__")),
)  # fmt: skip


def shown(value: Any) -> str:
    """Returns a default's text, without addresses."""
    return getattr(value, "__qualname__", None) or repr(value).partition(" object at ")[0].partition(" at 0x")[0]


def signature_text(function: Any) -> str:
    """Returns the parameters with their defaults, without annotations; the members of an enumeration."""
    if isinstance(function, enum.EnumType):
        return f"({', '.join(member.name for member in function)})"
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return "(...)"  # made in C
    texts, starred = [], False
    for p in parameters:
        starred |= p.kind is p.VAR_POSITIONAL
        if p.kind is p.KEYWORD_ONLY and not starred:
            texts.append("*")
            starred = True
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        texts.append(f"{stars}{p.name}" + ("" if p.default is p.empty else f"={shown(p.default)}"))
    return f"({', '.join(texts)})"


def lines_of(module_name: str) -> Iterator[str]:
    """Yields a line for each public function, class and method of a module."""
    module = importlib.import_module(module_name)
    own = (name for name, value in vars(module).items() if getattr(value, "__module__", None) == module_name)
    for name in sorted(getattr(module, "__all__", [name for name in own if not name.startswith("_")])):
        value = getattr(module, name)
        path = f"{module_name}.{name}"
        if inspect.isclass(value):
            yield path + signature_text(value)
            is_ours = value.__module__.startswith("nnc.")
            for attribute, member in sorted(vars(value).items()) if is_ours else ():
                if (
                    not attribute.startswith("_")
                    and callable(getattr(value, attribute, None))
                    and not inspect.isclass(member)
                ):
                    yield f"{path}.{attribute}{signature_text(getattr(value, attribute))}"
        elif callable(value):
            yield path + signature_text(value)


def all_lines() -> list[str]:
    return [line for module in MODULES for line in lines_of(module)]


if __name__ == "__main__":
    TEXT.write_text("\n".join(all_lines()) + "\n")
