"""Printed kernels that move elements without computing."""
