"""Kernels for this machine's processor: LLVM's text is compiled when it is needed, oneDNN and BLAS are called where they
are faster.
"""
