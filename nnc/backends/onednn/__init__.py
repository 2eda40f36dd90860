"""oneDNN's primitives as kernels: matrix products and convolutions of float32 and shorter floats."""
