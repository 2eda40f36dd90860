"""Intel's processors: as other x86-64, but for a slow way from the second-level cache."""

from __future__ import annotations

from dataclasses import replace

from nnc.device.targets.x86 import X86

INTEL = replace(
    X86,
    # Their cores are slower by a third where four vectors for each term come from there: 99 and 156 GFLOP/s on Granite Rapids
    # for 128 x 784 x 512.
    products=X86.products._replace(slow_second_cache=True),
)
