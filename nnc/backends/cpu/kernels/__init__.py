"""Printed kernels of commands."""
