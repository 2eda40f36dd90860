"""The rows in JAX: plain functions under `jit`, Optax for the updates."""
