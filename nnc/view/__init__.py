"""Pictures of graphs, memory plans and schedules, as SVG and as pages that need nothing else."""

from nnc.view.entry import View, view
from nnc.view.picture import Picture

__all__ = ["Picture", "View", "view"]
