"""Printed kernels for NVIDIA's GPUs."""
