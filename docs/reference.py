"""Pages of the reference: made of the lists of public names, so that none can be forgotten."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import nnc

MOST = 64  # names on a page: a module with more has a page for each of its files
INSIDE = ("nnc.lower", "nnc.backends", "nnc.commands", "nnc.trace")  # layers from which users import nothing
OPTIONS = {"nnc.Array": {"inherited_members": True}}  # of mkdocstrings; its methods are those of NumPy's arrays
FILES = (
    "nnc.errors", "nnc.typing", "nnc.tree", "nnc.nn.initializers", "nnc.numpy.fft", "nnc.numpy.linalg",
    "nnc.optim.assignment", "nnc.optim.microbatching", "nnc.optim.perturbations", "nnc.optim.second_order",
)  # fmt: skip
IMPORTED = "Examples run where the names of their module are imported, NumPy as `np`, `nnc`, and `nnc.numpy` as `nnp`."
SECTIONS = {  # of the menu, and the modules in it, with those inside of them; the last that fits counts
    "nnc": ("nnc",),
    "Arrays": ("nnc.numpy", "nnc.random", "nnc.tree", "nnc.typing"),
    "Models and training": ("nnc.nn", "nnc.optim", "nnc.data", "nnc.io"),
    "Science": ("nnc.scipy",),
    "Looking into programs": ("nnc.debug", "nnc.view", "nnc.testing", "nnc.errors"),
    "Devices and processes": ("nnc.devices", "nnc.distributed"),
    "Extending nnc": ("nnc.graph", "nnc.errors.names"),
}


def modules() -> dict[str, ModuleType]:
    """The modules that users import names from: `nnc`, and those in it that list the names that they offer."""
    found = {"nnc": nnc}
    for entry in pkgutil.walk_packages(nnc.__path__, "nnc."):
        if entry.ispkg and not entry.name.startswith(INSIDE):
            module = importlib.import_module(entry.name)
            if hasattr(module, "__all__"):
                found[entry.name] = module
    found.update((name, importlib.import_module(name)) for name in FILES)
    distributions = inspect.getmembers(nnc.scipy.stats, inspect.ismodule)
    found.update((module.__name__, module) for _, module in distributions if hasattr(module, "__all__"))
    return found


def public_names(module: ModuleType) -> list[str]:
    """The public names of a module: `__all__`, or else its own names without an underscore."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return getattr(module, "__all__", [name for name in own if not name.startswith("_")])


def documented(module: ModuleType) -> list[str]:
    """The names with an entry: modules have pages of their own, and `nnc.view.view` is `nnc.view`, which stands there."""
    path, _, own = module.__name__.rpartition(".")
    elsewhere = own if path and not is_module(sys.modules[path], own) else ""
    return sorted(
        (name for name in public_names(module) if name != elsewhere and not is_module(module, name)), key=str.lower
    )


def is_module(module: ModuleType, name: str) -> bool:
    """Whether a name is a module, and no function as well, as `nnc.view` is."""
    value = getattr(module, name)
    return inspect.ismodule(value) and not callable(value)


def file_of(module: ModuleType, name: str) -> str:
    """The last word of the file that defines a name of a package."""
    for part, value in vars(module).items():
        if (
            inspect.ismodule(value)
            and value.__name__ == f"{module.__name__}.{part}"
            and name in getattr(value, "__all__", [])
        ):
            return part
    where = str(getattr(getattr(module, name), "__module__", ""))
    return where.rpartition(".")[2] if where.startswith(f"{module.__name__}.") else "more"


def first_sentence(value: Any) -> str:
    """The first sentence of a docstring, for tables."""
    text = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    return text.partition(". ")[0].removesuffix(".")


def entry_of(module: ModuleType, name: str) -> str:
    """The path by which tools that read the source find a name: a function may share its path with the file that defines it."""
    path = f"{module.__name__}.{name}"
    return f"{path}.{name}" if hasattr(sys.modules.get(path), name) else path


def entries(module: ModuleType, names: list[str]) -> Iterator[str]:
    """Yields the lines from which mkdocstrings makes the entries of names."""
    for name in names:
        options = {"heading": f"{module.__name__}.{name}"} | OPTIONS.get(f"{module.__name__}.{name}", {})
        yield f"::: {entry_of(module, name)}\n    options: {json.dumps(options)}\n"


def head(title: str, text: str) -> str:
    """The beginning of a page."""
    return f"# {title}\n\n{text}\n\n*{IMPORTED}*\n"


def pages_of(name: str, module: ModuleType) -> Iterator[tuple[str, str, str]]:
    """Yields (path, title, text) of a module's pages, the first of which lists all names where there are several."""
    names, folder = documented(module), f"reference/{name}"
    about = inspect.getdoc(module) or ""
    if len(names) <= MOST:
        yield f"{folder}.md", name, "\n".join([head(f"`{name}`", about), *entries(module, names)])
        return
    files: dict[str, list[str]] = {}
    for each in names:
        files.setdefault(file_of(module, each), []).append(each)
    rows = [f"| [`{each}`][{entry_of(module, each)}] | {first_sentence(getattr(module, each))} |" for each in names]
    yield f"{folder}/index.md", name, "\n".join([head(f"`{name}`", about), "| name | |", "| --- | --- |", *rows, ""])
    for file, inside in sorted(files.items()):
        source = getattr(module, file, None) or importlib.import_module(f"{name}.{file}") if file != "more" else None
        title = file.replace("_", " ").capitalize()
        text = first_paragraph(source) if inspect.ismodule(source) else ""
        yield (
            f"{folder}/{file}.md",
            title,
            "\n".join([head(f"`{name}`: {file.replace('_', ' ')}", text), *entries(module, inside)]),
        )


def first_paragraph(module: ModuleType) -> str:
    """The beginning of a module's docstring."""
    return (inspect.getdoc(module) or "").split("\n\n")[0]


def section_of(name: str) -> str:
    """The section of the menu in which a module stands."""
    fits = [title for title, modules in SECTIONS.items() if any(f"{name}.".startswith(f"{each}.") for each in modules)]
    return fits[-1]


def pages() -> dict[str, str]:
    """The text of each page by its path."""
    return {path: text for name, module in modules().items() for path, _, text in pages_of(name, module)}


def menu() -> list[dict[str, Any]]:
    """The menu of the reference, as mkdocs.yml writes menus."""
    found: dict[str, list[Any]] = {title: [] for title in SECTIONS}
    for name, module in sorted(modules().items()):
        inside = [(title, path) for path, title, _ in pages_of(name, module)]
        (title, path), *rest = inside
        entry: Any = {title: path} if not rest else {title: [path, *({each: where} for each, where in rest)]}
        found[section_of(name)].append(entry)
    return [*found.pop("nnc"), *({title: inside} for title, inside in found.items())]
