"""Lowering: from a symbolic graph to a program with planned memory and chosen kernels."""
