"""The types that transforms have: each comment is the type that mypy reveals of the line below it (see test_types.py)."""

from __future__ import annotations

from typing import reveal_type

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc.typing import ArrayLike

Params = dict[str, nnc.Array]


def loss(params: Params, x: nnc.Array, scale: float = 1.0) -> nnc.Array: ...
def with_aux(params: Params, x: nnc.Array) -> tuple[nnc.Array, list[int]]: ...
def energy(x: nnc.Array) -> nnc.Array: ...
def speed(t: float) -> nnc.Array: ...
def both(x: nnc.Array, y: nnc.Array) -> nnc.Array: ...
def rotate(pair: tuple[nnc.Array, nnc.Array]) -> tuple[nnc.Array, nnc.Array]: ...
def advance(i: nnc.Array, pair: tuple[nnc.Array, nnc.Array]) -> tuple[nnc.Array, nnc.Array]: ...
def cell(pair: tuple[nnc.Array, nnc.Array], x: nnc.Array) -> tuple[tuple[nnc.Array, nnc.Array], Params]: ...
def ends(pair: tuple[nnc.Array, nnc.Array]) -> nnc.Array: ...


class Trainer:
    rate = 0.1

    @nnc.compile
    def step(self, params: Params, x: nnc.Array, *, scale: float = 1.0) -> Params: ...

    @nnc.compile(contract=True, static_argnums=0)
    def loss(self, params: Params) -> nnc.Array: ...


@nnc.compile
def compiled(x: nnc.Array, *, power: int = 2) -> nnc.Array: ...


@nnc.compile(donate_argnums=0)
def donating(x: nnc.Array, *, power: int = 2) -> nnc.Array: ...


@nnc.custom_vjp
def clipped(x: nnc.Array) -> nnc.Array: ...


@nnc.checkpoint
def block(x: nnc.Array, *, rate: float) -> nnc.Array: ...


def compiling() -> None:
    # Compiled[[x: Array, *, power: int =], Array]
    reveal_type(compiled)
    # Compiled[[x: Array, *, power: int =], Array]
    reveal_type(donating)
    # Compiled[[params: dict[str, Array], x: Array, scale: float =], Array]
    reveal_type(nnc.compile(loss, donate_argnums=0))
    # Array
    reveal_type(compiled(nnp.ones(2), power=3))
    # Compiled[[self: Trainer, params: dict[str, Array], x: Array, *, scale: float =], dict[str, Array]]
    reveal_type(Trainer.step)
    # BoundMethod[[params: dict[str, Array], x: Array, *, scale: float =], dict[str, Array]]
    reveal_type(Trainer().step)
    # Array
    reveal_type(Trainer().loss({}))
    # Graph
    reveal_type(compiled.lower(1.0).graph)
    # int
    reveal_type(compiled.cache_info().hits)
    # custom_vjp[[x: Array], Array]
    reveal_type(clipped)
    # def (x: Array, *, rate: float) -> Array
    reveal_type(block)
    # Compiled[[dict[str, Array], x: Array, scale: float =], dict[str, Array]]
    reveal_type(nnc.compile(nnc.vmap(nnc.grad(loss))))


def differentiating(p: Params, x: nnc.Array) -> None:
    # def (dict[str, Array], x: Array, scale: float =) -> dict[str, Array]
    reveal_type(nnc.grad(loss))
    # tuple[dict[str, Array], list[int]]
    reveal_type(nnc.grad(with_aux, has_aux=True)(p, x))
    # def (dict[str, Array], Array, scale: float =) -> Array
    reveal_type(nnc.grad(loss, argnums=1))
    # tuple[dict[str, Array], Array]
    reveal_type(nnc.grad(loss, (0, 1))(p, x))
    # object
    reveal_type(nnc.grad(loss, [0, 1])(p, x))
    # object
    reveal_type(nnc.grad(loss, argnames="scale")(p, x, scale=2.0))
    # def (Leaf) -> Array
    reveal_type(nnc.grad(energy))
    # Array
    reveal_type(nnc.grad(speed)(0.5))
    # Array
    reveal_type(nnc.grad(nnp.sin)(0.5))
    # Array
    reveal_type(nnc.grad(nnc.grad(energy))(0.5))
    # tuple[Array, dict[str, Array]]
    reveal_type(nnc.value_and_grad(loss)(p, x))
    # tuple[tuple[Array, list[int]], dict[str, Array]]
    reveal_type(nnc.value_and_grad(with_aux, has_aux=True)(p, x))
    # tuple[Array, Array]
    reveal_type(nnc.value_and_grad(loss, argnums=1)(p, x))
    # tuple[object, object]
    reveal_type(nnc.value_and_grad(loss, argnames="scale")(p, x))
    # tuple[Array, def (Array) -> tuple[Array]]
    reveal_type(nnc.vjp(energy, 1.0))
    # tuple[Array, def (Array) -> tuple[Array, Array]]
    reveal_type(nnc.vjp(both, x, x))
    # tuple[dict[str, Array], Array, float]
    reveal_type(nnc.vjp(loss, p, x, 1.0)[1](x))
    # list[int]
    reveal_type(nnc.vjp(with_aux, p, x, has_aux=True)[2])
    # tuple[Array, Array]
    reveal_type(nnc.jvp(nnp.sin, (0.0,), (1.0,)))
    # tuple[tuple[Array, Array], tuple[Array, Array]]
    reveal_type(nnc.jvp(rotate, ((x, x),), ((x, x),)))
    # tuple[Array, def (Leaf) -> Array]
    reveal_type(nnc.linearize(energy, 2.0))
    # list[int]
    reveal_type(nnc.linearize(with_aux, p, x, has_aux=True)[2])
    # def (Array) -> tuple[Array]
    reveal_type(nnc.linear_transpose(energy, x))
    # Array
    reveal_type(nnc.hvp(energy, (x,), (x,)))
    # tuple[Array, Array]
    reveal_type(nnc.hvp(both, (x, x), (x, x)))
    # Array
    reveal_type(nnc.jacfwd(energy)(x))
    # dict[str, Array]
    reveal_type(nnc.jacrev(loss)(p, x))
    # tuple[Array, Array]
    reveal_type(nnc.jacrev(ends)((x, x)))
    # Array
    reveal_type(nnc.hessian(energy)(x))
    # object
    reveal_type(nnc.hessian(ends)((x, x)))
    # dict[str, Array]
    reveal_type(nnc.stop_gradient(p))


def looping(x: nnc.Array, p: Params) -> None:
    # Array
    reveal_type(nnc.while_loop(energy, nnp.sin, 1.0))
    # tuple[Array, Array]
    reveal_type(nnc.while_loop(ends, rotate, (x, x)))
    # tuple[Array, Array]
    reveal_type(nnc.while_loop(ends, rotate, (0, 1.0)))
    # Array
    reveal_type(nnc.fori_loop(0, 5, both, 1.0))
    # tuple[Array, Array]
    reveal_type(nnc.fori_loop(0, x, advance, (x, x)))
    # tuple[tuple[Array, Array], dict[str, Array]]
    reveal_type(nnc.scan(cell, (x, x), x))
    # tuple[tuple[Array, Array], dict[str, Array]]
    reveal_type(nnc.scan(cell, (0, 1), np.ones(3)))
    # tuple[Array, Array]
    reveal_type(nnc.map(rotate, (x, x)))
    # Array
    reveal_type(nnc.associative_scan(nnp.add, x))
    # Array
    reveal_type(nnc.cond(x > 0, energy, nnp.cos, 1.0))
    # tuple[Array, Array]
    reveal_type(nnc.cond(True, rotate, rotate, (x, x)))
    # Array
    reveal_type(nnc.switch(x, [both, nnp.add], x, x))
    # tuple[Array, Array]
    reveal_type(nnc.case_of(x, {3: rotate}, (x, x)))
    # def (params: dict[str, Array], x: Array, scale: float =) -> Array
    reveal_type(nnc.vmap(loss))
    # tuple[Array, Array]
    reveal_type(nnc.vmap(rotate, in_axes=1)((x, x)))
    # ShapeDtypeStruct
    reveal_type(nnc.eval_shape(energy, x))
    # object
    reveal_type(nnc.eval_shape(rotate, (x, x)))
    # Graph
    reveal_type(nnc.make_graph(energy)(x))
    # dict[str, Array]
    reveal_type(nnc.tree.map(nnp.negative, p))
    # dict[str, Array]
    reveal_type(nnc.tree.map(nnp.add, p, p))
    # list[Array]
    reveal_type(nnc.tree.leaves(p))
    # Array
    reveal_type(nnc.dynamic_slice(x, (0,), (2,)))


def computing(x: nnc.Array, like: ArrayLike, host: np.ndarray[tuple[int], np.dtype[np.float32]]) -> None:
    # Array
    reveal_type(-x + 2 * x / 3 - 1j)
    # Array
    reveal_type((x @ x) ** 2)
    # Array
    reveal_type(2.0**x % 3 // 2)
    # Array
    reveal_type(x == 3)
    # Array
    reveal_type(x[0, ..., None, ::2].T)
    # Array
    reveal_type(x.at[x > 0].set(0))
    # Array
    reveal_type(x.sum(axis=0).reshape(-1, 2).astype("float32"))
    # tuple[Array, ...]
    reveal_type(x.nonzero())
    # tuple[int, ...]
    reveal_type(x.shape)
    # list[Array]
    reveal_type(list(x))
    # float
    reveal_type(float(x))
    # Array
    reveal_type(nnp.where(x > 0, x, 0.0))
    # tuple[Array, ...]
    reveal_type(nnp.where(x > 0))
    # Array
    reveal_type(nnp.einsum("ij,jk->ik", x, host))
    # Array
    reveal_type(nnp.concatenate([x, host]))
    # tuple[Array, Array, Array, fallback=SVDResult]
    reveal_type(nnp.linalg.svd(x))
    # Array
    reveal_type(nnp.linalg.solve(x, like))
    # Array
    reveal_type(nnp.fft.rfft(x).real)
    # Array
    reveal_type(nnp.asarray([[1, 2], [3.0, x]]))
    # Array
    reveal_type(nnp.mean(like))
    # Array
    reveal_type(nnp.linspace(0, 1, 5))
    # tuple[Array, Array]
    reveal_type(nnp.linspace(0, 1, 5, retstep=True))
    # tuple[Array, Array]
    reveal_type(nnp.average(x, weights=x, returned=True))
    # Array
    reveal_type(nnp.linalg.qr(x, "r"))
    # Array
    reveal_type(nnp.linalg.svd(x, compute_uv=False))
    # Array
    reveal_type(nnp.atleast_2d(x))
    # Array
    reveal_type(nnp.arange(3, dtype=float))
    # bool
    reveal_type(nnp.isdtype(x.dtype, "numeric"))
    # Array
    reveal_type(nnc.random.categorical(nnc.random.key(0), like))
    # Array
    reveal_type(nnc.nn.softmax_cross_entropy(x, [1, 2]))
    # ScalarType
    reveal_type(nnp.float32)
    # Array
    reveal_type(nnc.random.split(nnc.random.key(0), 3))
    # Array
    reveal_type(nnc.random.normal(nnc.random.key(0), (2, 3)))
    # Array
    reveal_type(nnc.nn.relu(x))
    # Array
    reveal_type(nnc.nn.softmax(x, axis=-1))
    # tuple[Init, Update, fallback=GradientTransformation]
    reveal_type(nnc.optim.adam(0.1))


def training(p: Params, layer: nnc.nn.Linear, x: nnc.Array, state: tuple[nnc.Array, int]) -> None:
    # tuple[dict[str, Array], tuple[Array, int]]
    reveal_type(nnc.optim.adam(0.1).update(p, state, p))
    # Linear
    reveal_type(nnc.optim.apply_updates(layer, layer))
    # object
    reveal_type(nnc.optim.adam(0.1).init(p))
    # Array
    reveal_type(layer(x))


def modelling(x: nnc.Array, model: nnc.nn.MLP, attention: nnc.nn.MultiHeadAttention, cache: nnc.nn.KVCache) -> None:
    # Array
    reveal_type(attention(x, is_causal=True))
    # tuple[Array, tuple[Array, Array, Array, fallback=KVCache]]
    reveal_type(attention(x, cache=cache))
    # tuple[Array, tuple[tuple[tuple[Array, Array, fallback=LSTMState], ...], ...]]
    reveal_type(nnc.nn.LSTM(4, 8, key=x)(x))
    # Array
    reveal_type(nnc.nn.GRUCell(4, 8, key=x)(x))
    # tuple[Array, ResNet]
    reveal_type(nnc.nn.models.resnet18(key=x)(x))
    # tuple[MLP, MLP]
    reveal_type(nnc.nn.partition(model))
    # object
    reveal_type(nnc.nn.trainable(model))
    # dict[str, Array]
    reveal_type(nnc.nn.parameters(model))
    # MLP
    reveal_type(nnc.io.load("model", like=nnc.nn.cast(model, "float16")))
    # Array
    reveal_type(nnc.io.load("weight", like=nnc.ShapeDtypeStruct((2,), "float32")))
    # Batches[tuple[Array, Array]]
    reveal_type(nnc.data.batches((x, x), 2))
    # Batches[int]
    reveal_type(nnc.data.batches((x, x), 2, transform=shrunk))
    # list[Array]
    reveal_type(nnc.tree.flatten(model)[0])
    # Array
    reveal_type(nnc.tree.reduce(nnp.add, model))
    # float
    reveal_type(nnc.tree.reduce(largest, model, 0.0))
    # Array
    reveal_type(nnp.unique(x))
    # tuple[Array, ...]
    reveal_type(nnp.unique(x, return_counts=True))
    # tuple[Array, Array]
    reveal_type(nnp.triu_indices(3))


def shrunk(key: object, batch: tuple[nnc.Array, nnc.Array]) -> int: ...
def largest(so_far: float, leaf: nnc.Array) -> float: ...
