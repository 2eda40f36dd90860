"""Kinds of cores with x86-64's instructions: the figures are the records' own, or stand here where a kind differs."""

from __future__ import annotations

from dataclasses import replace

from nnc.base.options import CPU
from nnc.device.target import Products, Target

X86 = Target(kind=CPU, vector_bytes=64, cores=2)

# Intel's cores are slower by a third where four vectors for each term come from the second-level cache: 99 and 156 GFLOP/s on
# Granite Rapids for 128 x 784 x 512.
INTEL = replace(X86, products=Products(slow_second_cache=True))
