"""An interpreter of PTX on NumPy: it runs kernels without a GPU, checks each access, and counts instructions and sectors."""

from nnc.device.ptx.counts import Counts
from nnc.device.ptx.module import Entry, PtxModule
from nnc.device.ptx.regions import Region

__all__ = ["Counts", "Entry", "PtxModule", "Region"]
