"""Optimizers as pairs of pure functions, `(init, update)`, that chain; with learning-rate schedules and clipping.

A training step makes updates of gradients and adds them to the parameters:

    optimizer = nnc.optim.adam(1e-3)
    state = optimizer.init(params)
    updates, state = optimizer.update(grads, state, params)
    params = nnc.optim.apply_updates(params, updates)

All of it is pure, so the whole step compiles. Names, arguments and formulas are those of Optax; where torch.optim differs, the
docstring says which arguments give its steps. Optimizers combine: `chain` one after the other, `masked` and `multi_transform` for
parts of the parameters, `MultiSteps` over several gradients, `lookahead`, `ema`; `DynamicLossScale` is for 16-bit floats.
"""

# ruff: noqa: F403  (each file lists its names)

from typing import TYPE_CHECKING

from nnc.errors.names.lookup import listed_names, public_names
from nnc.optim import assignment as assignment
from nnc.optim import microbatching as microbatching
from nnc.optim import perturbations as perturbations
from nnc.optim import second_order as second_order
from nnc.optim.accumulate import *
from nnc.optim.adafactor import *
from nnc.optim.adagrad import *
from nnc.optim.adam_aliases import *
from nnc.optim.adam_family import *
from nnc.optim.adan import *
from nnc.optim.ademamix import *
from nnc.optim.backtracking import *
from nnc.optim.base import *
from nnc.optim.belief import *
from nnc.optim.by_value import *
from nnc.optim.clipping import *
from nnc.optim.cocob import *
from nnc.optim.composing import *
from nnc.optim.compressed import *
from nnc.optim.conditions import *
from nnc.optim.constraints import *
from nnc.optim.cycles import *
from nnc.optim.distance import *
from nnc.optim.fromage import *
from nnc.optim.galore import *
from nnc.optim.hyperparams import *
from nnc.optim.lbfgs import *
from nnc.optim.least_squares import *
from nnc.optim.linesearch import *
from nnc.optim.madgrad import *
from nnc.optim.mechanic import *
from nnc.optim.microbatching import microbatch as microbatch
from nnc.optim.moments import *
from nnc.optim.monitoring import *
from nnc.optim.muon import *
from nnc.optim.noise import *
from nnc.optim.novograd import *
from nnc.optim.optimistic import *
from nnc.optim.optimizers import *
from nnc.optim.partition import *
from nnc.optim.plateau import *
from nnc.optim.precision import *
from nnc.optim.prodigy import *
from nnc.optim.projections import *
from nnc.optim.sam import *
from nnc.optim.schedule_free import *
from nnc.optim.schedules import *
from nnc.optim.sharded import *
from nnc.optim.signs import *
from nnc.optim.sm3 import *
from nnc.optim.sophia import *
from nnc.optim.transforms import *

__all__ = listed_names(__name__, "assignment", "microbatch", "microbatching", "perturbations", "second_order")


if not TYPE_CHECKING:  # to which a name that is not there would be one of type NoReturn
    __getattr__, __dir__ = public_names("nnc.optim")
