"""Factorisations in JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from benchmarks.peers.row import Case, Inputs, without_signs


def factorise(inputs: Inputs, *, function: str) -> Case:
    """A function of jnp.linalg."""
    compiled, x = jax.jit(getattr(jnp.linalg, function)), jnp.asarray(inputs["x"])
    return Case(lambda: jax.block_until_ready(compiled(x)), without_signs)
