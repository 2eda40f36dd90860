"""The rows in PyTorch: each is given `wrap`, which is `torch.compile` or leaves the function as it is."""
