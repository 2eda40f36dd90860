"""Hamiltonian Monte Carlo (Neal, 2011) for logistic regression: the Wisconsin breast cancer data, 569 tumours.

Four chains sample the posterior of the weights of five measures, each chain one `while_loop` under `vmap`: first it adapts its
step size, then it draws. Prints means, deviations, effective sample sizes and R̂ beside the normal approximation at the mode,
and leaves a trace plot in --out.

    pip install 'nnc[examples]'
    python examples/hmc.py
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from report import Chart, table
from sklearn.datasets import load_breast_cancer

import nnc
import nnc.numpy as nnp
from nnc import optim

NDArray = np.ndarray[Any, Any]

MEASURES = ("mean radius", "mean texture", "mean smoothness", "mean concavity", "mean symmetry")
CHAINS, LEAPS, ACCEPT = 4, 8, 0.8


def read() -> tuple[NDArray, NDArray]:
    """The measures, standardised, with a column of ones; 1 for malignant tumours."""
    data = load_breast_cancer()
    x = data.data[:, [list(data.feature_names).index(name) for name in MEASURES]]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    return np.column_stack([np.ones(len(x)), x]), (data.target == 0).astype(np.float64)


def log_posterior(w: Any, x: Any, y: Any) -> Any:
    """The log density of the weights, up to a constant: a normal prior of deviation 5, and the likelihood of the labels."""
    scores = x @ w
    return nnp.sum(y * scores - nnp.logaddexp(0.0, scores)) - 0.5 * nnp.sum(w * w) / 25.0


# -- the sampler -------------------------------------------------------------------------------------------------------


class Chain(NamedTuple):
    """The state that a chain hands from one draw to the next."""

    i: Any
    key: Any
    w: Any
    log_step: Any
    draws: Any
    accepted: Any


def leapfrog(w: Any, momentum: Any, step: Any, slope: Any) -> tuple[Any, Any]:
    """Follows Hamilton's equations for LEAPS steps."""

    def leap(i: Any, state: Any) -> Any:
        w, momentum = state
        momentum = momentum + 0.5 * step * slope(w)
        w = w + step * momentum
        return w, momentum + 0.5 * step * slope(w)

    return nnc.fori_loop(0, LEAPS, leap, (w, momentum))


def first_chain(key: Any, start: Any, draws: int) -> Chain:
    """A chain before its first draw."""
    return Chain(
        nnp.asarray(0), key, start, nnp.asarray(np.log(0.1)).astype(start.dtype),
        nnp.zeros((draws, *start.shape), start.dtype), nnp.zeros((), start.dtype),
    )  # fmt: skip


def advance(chain: Chain, until: Any, x: Any, y: Any, warm_up: int) -> Chain:
    """Draws until there are `until`, those of the warm-up included, which adapt the step size."""
    target = lambda w: log_posterior(w, x, y)
    slope = nnc.grad(target)

    def draw(chain: Chain) -> Chain:
        key, for_momentum, for_choice = nnc.random.split(chain.key, 3)
        momentum = nnc.random.normal(for_momentum, chain.w.shape, chain.w.dtype)
        w, after = leapfrog(chain.w, momentum, nnp.exp(chain.log_step), slope)
        gain = target(w) - target(chain.w) - 0.5 * (nnp.sum(after * after) - nnp.sum(momentum * momentum))
        chance = nnp.exp(nnp.minimum(nnp.where(nnp.isfinite(gain), gain, -np.inf), 0.0))
        w = nnp.where(nnc.random.uniform(for_choice, (), chain.w.dtype) < chance, w, chain.w)
        warm = chain.i < warm_up
        change = 0.7 * (chance - ACCEPT) / nnp.sqrt(1.0 + chain.i)
        place = nnp.maximum(chain.i - warm_up, 0)
        return Chain(
            chain.i + 1, key, w, chain.log_step + nnp.where(warm, change, 0.0), chain.draws.at[place].set(w),
            chain.accepted + nnp.where(warm, 0.0, chance),
        )  # fmt: skip

    return nnc.while_loop(lambda chain: chain.i < until, draw, chain)


# -- results ----------------------------------------------------------------------------------------------------------


def effective_size(draws: NDArray) -> float:
    """The number of independent draws that are worth as much as these (chains, draws), after Geyer (1992)."""
    chains, n = draws.shape
    centred = draws - draws.mean(axis=1, keepdims=True)
    padded = np.fft.rfft(centred, 2 * n, axis=1)
    covariance = np.fft.irfft(np.abs(padded) ** 2, axis=1)[:, :n].mean(axis=0) / n
    between = n * draws.mean(axis=1).var(ddof=1) / n
    variance = covariance[0] + between
    correlation = 1 - (covariance[0] - covariance) / variance
    pairs = correlation[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs < 0)
    pairs = pairs[: negative[0] if len(negative) else len(pairs)]
    return float(chains * n / max(2 * np.minimum.accumulate(pairs).sum() - 1, 1 / n))


def r_hat(draws: NDArray) -> float:
    """Split R̂ (Gelman and Rubin, 1992): 1 where halves of chains agree."""
    n = draws.shape[1] // 2
    halves = np.concatenate([draws[:, :n], draws[:, n : 2 * n]])
    within = halves.var(axis=1, ddof=1).mean()
    return float(np.sqrt((n - 1) / n + halves.mean(axis=1).var(ddof=1) / within))


def normal_approximation(x: NDArray, y: NDArray) -> tuple[NDArray, NDArray]:
    """Mode and deviations of the posterior, by L-BFGS and the Hessian."""
    optimizer, loss = optim.lbfgs(), lambda w: -log_posterior(w, x, y)

    @nnc.compile(max_traces=1)
    def step(w: Any, state: Any) -> Any:
        value, grads = optim.value_and_grad_from_state(loss)(w, state=state)
        updates, state = optimizer.update(grads, state, w, value=value, grad=grads, value_fn=loss)
        return optim.apply_updates(w, updates), state

    w: Any = nnp.asarray(np.zeros(x.shape[1]))
    state = optimizer.init(w)
    for _ in range(30):
        w, state = step(w, state)
    return np.asarray(w), np.sqrt(np.diag(np.linalg.inv(np.asarray(nnc.hessian(loss)(w)))))


def main() -> None:
    """Reads the command line, samples, judges, draws."""
    parser = argparse.ArgumentParser(description="Hamiltonian Monte Carlo for logistic regression.")
    parser.add_argument("--draws", type=int, default=1000, help="of each chain (default: %(default)s)")
    parser.add_argument(
        "--warm-up", type=int, default=300, help="draws that adapt the step size (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of starts and draws (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="where the picture goes (default: %(default)s)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    x, y = read()
    mode, deviation = normal_approximation(x, y)
    key, for_start = nnc.random.split(nnc.random.key(options.seed))
    starts = mode + deviation * np.asarray(nnc.random.normal(for_start, (CHAINS, len(mode)), np.float64))

    chains = nnc.vmap(lambda key, start: first_chain(key, start, options.draws))(
        nnc.random.split(key, CHAINS), nnp.asarray(starts)
    )

    @nnc.compile(max_traces=1)
    def run(chains: Any, until: Any) -> Any:
        return nnc.vmap(lambda chain: advance(chain, until, x, y, options.warm_up))(chains)

    total = options.warm_up + options.draws
    with nnc.debug.progress(total=CHAINS * total, description="sampling", unit="draws") as bar:
        for done in range(0, total, 50):
            until = min(done + 50, total)
            chains = run(chains, np.array(until))
            bar.update(CHAINS * (until - done), step=np.exp(np.asarray(chains.log_step)).mean())
    draws, accepted = np.asarray(chains.draws), np.asarray(chains.accepted) / options.draws

    rows = []
    for i, name in enumerate(("at the mean", *MEASURES)):
        part = draws[:, :, i]
        rows.append([name, part.mean(), part.std(), effective_size(part), r_hat(part), mode[i], deviation[i]])
    print(table(["weight", "mean", "deviation", "effective draws", "R-hat", "mode", "normal deviation"], rows))

    chart = Chart("Traces of the weight of the mean radius", "draw", "weight")
    for i in range(CHAINS):
        chart.line(np.arange(options.draws), draws[i, :, 1], f"chain {i + 1}")
    chart.save(options.out / "hmc.svg")
    print(f"the picture is {options.out / 'hmc.svg'}")
    print(f"accepted: {accepted.mean():.3f}, largest R-hat: {max(row[4] for row in rows):.4f}")


if __name__ == "__main__":
    main()
