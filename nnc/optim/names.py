"""Names of torch.optim and Optax that nnc writes otherwise: a lookup of one in nnc.optim raises an error that names nnc's."""

from __future__ import annotations

from typing import NoReturn

from nnc.spelling import missing_name

NAMES = {
    **{
        name: name.lower()
        for name in (
            "SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Adafactor", "LBFGS", "Muon",
            "Rprop",
        )
    },
    "partition": "multi_transform",
    "polyak_averaging": "incremental_update, or ema",
    "GradScaler": "DynamicLossScale",
    "clip_grad_norm_": "chain(clip_by_global_norm(...), optimizer)",
    "clip_grad_value_": "chain(clip(...), optimizer)",
    "lr_scheduler": "a schedule as learning_rate, such as cosine_decay_schedule(0.1, steps)",
    "ConstantLR": "constant_schedule",
    "LinearLR": "linear_schedule",
    "StepLR": "exponential_decay with staircase=True",
    "MultiStepLR": "piecewise_constant_schedule",
    "ExponentialLR": "exponential_decay",
    "PolynomialLR": "polynomial_schedule",
    "CosineAnnealingLR": "cosine_decay_schedule",
    "CosineAnnealingWarmRestarts": "sgdr_schedule",
    "OneCycleLR": "cosine_onecycle_schedule",
    "SequentialLR": "join_schedules",
    "LambdaLR": "a function from the number of the step as learning_rate",
}  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    """Raises MissingNameError, with nnc's name where `name` is another library's."""
    raise missing_name("nnc.optim", name, NAMES)
