"""Pictures of graphs, memory plans and schedules, as SVG and as pages that need nothing else."""

import sys
from types import ModuleType
from typing import Any

from nnc.view.entry import View, view
from nnc.view.picture import Picture

memory, schedule = view.memory, view.schedule


class _CallableModule(ModuleType):
    """`nnc.view` is this module and the function of its name, whichever was there first."""

    def __call__(self, graph: Any, /, *args: Any, **kwargs: Any) -> Picture:
        return view(graph, *args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule

__all__ = ["Picture", "View", "memory", "schedule", "view"]


def __dir__() -> list[str]:
    return sorted(__all__)
