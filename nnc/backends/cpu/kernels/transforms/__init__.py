"""Printed kernels of Fourier transforms."""
