"""An interpreter of PTX on NumPy: it runs kernels without a GPU, checks each access, and counts instructions and sectors."""

from nnc.devices.ptx.counts import Counts
from nnc.devices.ptx.module import Entry, PtxModule
from nnc.devices.ptx.regions import Region

__all__ = ["Counts", "Entry", "PtxModule", "Region"]
