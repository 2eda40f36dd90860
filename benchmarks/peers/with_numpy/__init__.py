"""The rows in NumPy, where it has them."""
