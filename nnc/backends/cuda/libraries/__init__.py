"""NVIDIA's libraries: cuBLASLt, NCCL, and those behind CuPy."""
