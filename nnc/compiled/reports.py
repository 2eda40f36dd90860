"""The reports that compiled programs hand out, for public rooms that show them."""

from nnc.lower.plan.schedule.report import ScheduleReport, ScheduleRow
from nnc.run.report import MemoryPlan, MemoryRow

__all__ = ["MemoryPlan", "MemoryRow", "ScheduleReport", "ScheduleRow"]
