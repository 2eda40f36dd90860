"""Programs that are no networks: loops, a likelihood, a chain of row-wise functions, sorting."""

from __future__ import annotations

import numpy as np

from benchmarks.peers.row import Inputs, Row, Work, draw, normal

RK4_STEPS, RK4_SIZE = 2000, 16
EULER_STEPS = 200
ITERATIONS = 1_000_000
POINTS, FEATURES = 400, 4
CHAIN = (2048, 1024)
SORTED = 1_000_000


def _rk4() -> Inputs:
    rng = draw()
    return {
        "matrix": normal(rng, RK4_SIZE, RK4_SIZE, scale=RK4_SIZE**-0.5),
        "start": normal(rng, RK4_SIZE),
        "dt": np.float32(1e-3),
    }


def _while() -> Inputs:
    # 0.3 has digits far below the digits of x, so that the last digit tells how often a round was rounded
    return {"start": np.float32(0.0), "factor": np.float32(0.999), "shift": np.float32(0.3)}


def _likelihood() -> Inputs:
    rng = draw()
    points = rng.standard_normal((POINTS, FEATURES))
    values = np.sin(points.sum(1)) + 0.1 * rng.standard_normal(POINTS)
    return {"points": points, "values": values, "logs": np.array([0.1, 0.2, -0.1, 0.3, 0.0, -2.0])}


def _chain() -> Inputs:
    rng, width = draw(), CHAIN[1]
    return {
        "x": normal(rng, *CHAIN),
        "scale": 1 + normal(rng, width, scale=0.1),
        "bias": normal(rng, width, scale=0.1),
        "target": normal(rng, *CHAIN),
    }


def _shuffled() -> Inputs:
    return {"x": draw().permutation(SORTED).astype(np.float32)}  # without ties, so all orders are the same


_LOOP = {"torch": 100, "torch.compile": 100}
_SIZE = 4 * CHAIN[0] * CHAIN[1]

ROWS = (
    Row(
        "rk4",
        f"RK4, {RK4_STEPS:,} steps of a {RK4_SIZE}-vector",
        "programs.rk4",
        _rk4,
        # One after the other in each of four evaluations: the product's, dt's, and three at least of tanh.
        Work(flops=RK4_STEPS * 4 * 2 * RK4_SIZE**2, chain=RK4_STEPS * 4 * 5),
        "rk4",
        {"steps": RK4_STEPS},
        rtol=1e-3,
    ),
    Row(
        "while",
        f"while loop, {ITERATIONS:,} iterations on a scalar, contracted",
        "programs.contracted_while",
        _while,
        Work(flops=2 * ITERATIONS, chain=ITERATIONS),
        "while",
        {"iterations": ITERATIONS},
        frameworks=("nnc", "jax"),
        rtol=0,
    ),
    Row(
        "while-rounded",
        f"while loop, {ITERATIONS:,} iterations on a scalar, each operation rounded",
        "programs.rounded_while",
        _while,
        Work(flops=2 * ITERATIONS, chain=2 * ITERATIONS),
        "while-rounded",
        {"iterations": ITERATIONS},
        rtol=0,
        parts=_LOOP,
    ),
    Row(
        "while-jacobian",
        f"while loop, {EULER_STEPS} Euler steps of a {RK4_SIZE}-vector, Jacobian by forward mode",
        "programs.while_jacobian",
        _rk4,
        # A product for the values and one for the columns; one after the other the product's, dt's, and three at least of tanh.
        Work(flops=EULER_STEPS * 2 * (RK4_SIZE + 1) * RK4_SIZE**2, chain=EULER_STEPS * 5),
        "while-jacobian",
        {"steps": EULER_STEPS},
        frameworks=("nnc", "jax"),
    ),
    Row(
        "while-gradient",
        f"while loop, {EULER_STEPS} Euler steps of a {RK4_SIZE}-vector, gradient (JAX: loop of known length)",
        "programs.while_gradient",
        _rk4,
        Work(flops=EULER_STEPS * 3 * 2 * RK4_SIZE**2, chain=EULER_STEPS * 7),  # and two backwards
        "while-gradient",
        {"steps": EULER_STEPS},
        frameworks=("nnc", "jax"),
    ),
    Row(
        "gp",
        f"GP likelihood, Cholesky n={POINTS}, float64, with gradient",
        "programs.likelihood",
        _likelihood,
        # n³/3 each for the factor and for its derivative twice; float64 runs at half the rate of float32.
        Work(flops=2 * POINTS**3, nbytes=3 * 8 * POINTS**2),
        "gp",
        rtol=1e-6,
    ),
    Row(
        "chain",
        f"layer norm, gelu, softmax on {CHAIN[0]} x {CHAIN[1]}, with gradient",
        "programs.chain",
        _chain,
        Work(nbytes=3 * _SIZE),  # x and the target are read, the gradient of x is written
        "chain",
    ),
    Row(
        "sort",
        f"sort {SORTED:,} float32",
        "programs.sort",
        _shuffled,
        Work(nbytes=8 * SORTED),
        "sort",
        frameworks=("nnc", "jax", "torch", "numpy"),
        rtol=0,
    ),
    Row(
        "argsort",
        f"argsort {SORTED:,} float32",
        "programs.argsort",
        _shuffled,
        Work(nbytes=8 * SORTED),
        "argsort",
        frameworks=("nnc", "jax", "torch", "numpy"),
        rtol=0,
    ),
)
