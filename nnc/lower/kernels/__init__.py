"""Kernels as code: the scalar commands of a group become one loop nest, printed as LLVM's text.

Nothing here imports LLVM: a kernel is defined in `native.py` and `kernel_ir.py`, and backends compile the text.
"""
