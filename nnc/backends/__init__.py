"""Backends: each binds kernels to commands and says which inputs it takes."""
