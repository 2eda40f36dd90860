"""All tables: for each module of another library its names, and for each module of nnc the tables that its users come from."""

from __future__ import annotations

from collections.abc import Mapping

from nnc.errors.names import jax, libraries, objects, places, pytorch, pytorch_nn, pytorch_tensor
from nnc.errors.names.rows import Rows

TABLES: Mapping[str, Rows] = {
    "jax": jax.JAX,
    "jax.numpy": jax.JAX_NUMPY,
    "jax.lax": jax.JAX_LAX,
    "jax.random": jax.JAX_RANDOM,
    "jax.tree_util": jax.JAX_TREE_UTIL,
    "jax.nn": jax.JAX_NN,
    "jax.scipy": jax.JAX_SCIPY,
    "jax.scipy.special": jax.JAX_SCIPY_SPECIAL,
    "jax.scipy.linalg": jax.JAX_SCIPY_LINALG,
    "equinox": libraries.EQUINOX,
    "equinox.nn": libraries.EQUINOX_NN,
    "flax": libraries.FLAX,
    "optax": libraries.OPTAX,
    "torch": pytorch.TORCH,
    "torch.linalg": pytorch.TORCH_LINALG,
    "torch.Tensor": pytorch_tensor.TENSOR,
    "torch.nn": pytorch_nn.NN,
    "torch.nn.functional": pytorch_nn.FUNCTIONAL,
    "torch.nn.init": pytorch_nn.INIT,
    "torch.optim": pytorch.OPTIM,
    "jax.sharding": places.JAX_SHARDING,
    "jax.distributed": places.JAX_DISTRIBUTED,
    "jax.experimental": places.JAX_EXPERIMENTAL,
    "torch.distributed": places.TORCH_DISTRIBUTED,
    "torch.nn.Module": objects.TORCH_MODULE,
    "torch.optim.Optimizer": objects.TORCH_OPTIMIZER,
    "flax.Module": objects.FLAX_MODULE,
}
"""The tables by the modules of other libraries.

Example:
    >>> TABLES["jax"]["jit"]
    'nnc.compile(f)'
"""

SOURCES: Mapping[str, tuple[str, ...]] = {
    "nnc": (
        "jax",
        "jax.lax",
        "torch",
        "equinox",
        "jax.tree_util",
        "jax.sharding",
        "jax.experimental",
        "jax.distributed",
    ),
    "nnc.numpy": ("jax.numpy", "jax.lax", "torch", "torch.Tensor"),
    "nnc.numpy.linalg": ("torch.linalg", "torch"),
    "nnc.random": ("jax.random", "torch", "torch.Tensor"),
    "nnc.tree": ("jax.tree_util", "equinox", "jax"),
    "nnc.nn": ("torch.nn.functional", "torch.nn", "jax.nn", "flax", "equinox", "equinox.nn", "optax", "torch"),
    "nnc.nn.initializers": ("torch.nn.init", "jax.nn"),
    "nnc.optim": ("torch.optim", "optax"),
    "nnc.scipy": ("jax.scipy", "jax.scipy.special", "jax.scipy.linalg"),
    "nnc.distributed": ("jax.sharding", "jax.distributed", "jax.experimental", "torch.distributed"),
    "nnc.Array": ("torch.Tensor",),
    "nnc.nn.Module": ("torch.nn.Module", "flax.Module"),
    "nnc.optim.GradientTransformation": ("torch.optim.Optimizer",),
}
"""The modules whose tables are read first, in this order, for names that a module of nnc lacks.

Example:
    >>> SOURCES["nnc.random"]
    ('jax.random', 'torch', 'torch.Tensor')
"""
