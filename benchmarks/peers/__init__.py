"""nnc beside JAX, PyTorch and NumPy: the same programs, each in its own process, taking turns."""
