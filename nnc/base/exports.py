"""The public names of packages, each listed once: in `__all__` of the file that defines it."""

from __future__ import annotations

import sys
from types import ModuleType


def listed_names(package: str, *others: str, source: ModuleType | None = None) -> tuple[str, ...]:
    """The names that a package has imported from its files by `*`, or from those of `source`, and `others`; sorted."""
    own = vars(sys.modules[package])
    files = [module for name, module in sys.modules.items() if name.rpartition(".")[0] == package]
    files += [source] if source is not None else []
    listed = {
        name
        for file in files
        for name in getattr(file, "__all__", ())
        if name in own and own[name] is vars(file).get(name)
    }
    return tuple(sorted({*listed, *others}))
