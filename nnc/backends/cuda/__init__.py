"""Kernels for NVIDIA's graphics processors. They are interpreted and assembled in tests."""
