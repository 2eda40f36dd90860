"""Kernels as code: the scalar commands of a group become one loop nest, printed as LLVM's text.

Nothing here imports LLVM: what a kernel is stands in `native.py` and `kernel_ir.py`, and backends compile the text.
"""
