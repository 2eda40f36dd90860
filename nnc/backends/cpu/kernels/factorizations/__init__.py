"""Printed factorisations of matrices."""
