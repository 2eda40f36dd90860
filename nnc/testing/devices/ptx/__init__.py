"""An interpreter of PTX on NumPy: it runs kernels without a GPU, checks each access, and counts instructions and sectors."""

from nnc.testing.devices.ptx.counts import Counts
from nnc.testing.devices.ptx.module import Entry, PtxModule
from nnc.testing.devices.ptx.regions import Region

__all__ = ["Counts", "Entry", "PtxModule", "Region"]
