"""Programs of CUDA's devices."""
