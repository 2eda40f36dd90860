"""Printed products of matrices and triangular systems."""
