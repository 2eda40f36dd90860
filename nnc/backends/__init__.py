"""What runs commands: each backend binds kernels to commands and says which inputs it takes."""
