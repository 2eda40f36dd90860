"""The public names of packages, each listed once: in `__all__` of the file that defines it."""

from __future__ import annotations

import sys


def listed_names(package: str, *others: str) -> list[str]:
    """The names that a package has imported from its files by `*`, and `others`; sorted."""
    own = vars(sys.modules[package])
    files = [module for name, module in sys.modules.items() if name.rpartition(".")[0] == package]
    listed = {
        name
        for file in files
        for name in getattr(file, "__all__", ())
        if name in own and own[name] is vars(file).get(name)
    }
    return sorted({*listed, *others})
