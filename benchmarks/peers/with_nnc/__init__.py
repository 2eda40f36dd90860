"""The rows in nnc, as a user writes them."""
