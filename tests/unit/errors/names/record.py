"""Results of other libraries for the cases of tests/unit/errors/names/cases.py.

python -m tests.unit.errors.names.record        writes recorded.json; run it where torch, jax and optax are installed
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.unit.errors.names.cases import CASES, COMMON, Case

RECORDED = Path(__file__).with_name("recorded.json")
STEPS = 6


def numbers(value: Any) -> list[Any]:
    """All elements of arrays, numbers, and lists of them, as pairs (shape, elements); complex numbers as two floats."""
    if isinstance(value, (list, tuple)):
        return [one for part in value for one in numbers(part)]
    array = np.ascontiguousarray(value).reshape(np.shape(value))
    elements = array.astype(complex).reshape(-1).view(float) if array.dtype.kind == "c" else array.astype(float)
    return [[list(array.shape), [float(f"{x:.7g}") for x in elements.ravel()]]]


def parameters(convert: Callable[[Any], Any]) -> tuple[Any, list[Any]]:
    """Parameters, and the gradients of some steps."""
    return convert(COMMON["x"]), [convert(np.asarray(COMMON["y"]) * (1 + k)) for k in range(STEPS)]


def original(source: str, case: Case) -> list[Any]:
    """The result of the call of another library."""
    return numbers(_of_torch(case) if source.startswith("torch") else _of_jax(case))


def _of_torch(case: Case) -> Any:
    torch = importlib.import_module("torch")

    def convert(value: Any) -> Any:
        if isinstance(value, list):
            return [convert(part) for part in value]
        return torch.as_tensor(value) if isinstance(value, np.ndarray) else value

    def rates(scheduler: Any, *args: Any, **kwargs: Any) -> list[float]:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        schedule, found = scheduler(optimizer, *args, **kwargs), []
        for _ in range(STEPS):
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        return found

    def trained(optimizer: Any, **kwargs: Any) -> Any:
        start, gradients = parameters(lambda x: torch.tensor(x))
        weight = torch.nn.Parameter(start)
        made = optimizer([weight], **kwargs)
        for gradient in gradients:
            weight.grad = gradient
            made.step()
        return weight

    def plain(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [plain(part) for part in value]
        return value.detach().resolve_conj().resolve_neg().numpy() if isinstance(value, torch.Tensor) else value

    names = {name: convert(value) for name, value in {**COMMON, **case.operands}.items()}
    known = {
        "torch": torch,
        "F": torch.nn.functional,
        "S": torch.optim.lr_scheduler,
        "rates": rates,
        "trained": trained,
    }
    return plain(eval(case.call, {**names, **known}))


def _of_jax(case: Case) -> Any:
    jax, optax = importlib.import_module("jax"), importlib.import_module("optax")

    arrays = {name: jax.numpy.asarray(x) if isinstance(x, np.ndarray) else x for name, x in COMMON.items()}
    own = {name: jax.numpy.asarray(x) if isinstance(x, np.ndarray) else x for name, x in case.operands.items()}
    return eval(case.call, {**arrays, **own, "jax": jax, "lax": jax.lax, "optax": optax})


if __name__ == "__main__":
    lines = [
        f"{json.dumps(f'{source}.{name}')}: {json.dumps(original(source, case))}"
        for (source, name), case in CASES.items()
    ]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
