"""Kernels for NVIDIA's graphics processors. They are interpreted and assembled in tests, and never ran on a device."""
