"""nnc beside PyTorch and JAX on a graphics processor."""
