"""Names of torch.optim and Optax that nnc writes otherwise: a lookup of one in nnc.optim raises an error that names nnc's."""

from __future__ import annotations

from typing import NoReturn

from nnc.spelling import missing_name

LOSSES = {  # of Optax, and their names in nnc.nn
    "l2_loss": "mse, of which it is the half",
    "squared_error": 'mse with reduction="none"',
    "huber_loss": 'huber with reduction="none"',
    "hinge_loss": "hinge",
    "triplet_margin_loss": "triplet_margin",
    "kl_divergence": "kl_div",
    "kl_divergence_with_log_targets": "kl_div with log_targets=True",
    "convex_kl_divergence": "generalized_kl_divergence",
    "ctc_loss": "ctc",
    "sigmoid_binary_cross_entropy": "sigmoid_cross_entropy",
    "softmax_cross_entropy_with_integer_labels": "softmax_cross_entropy",
    "safe_softmax_cross_entropy": "softmax_cross_entropy",
    **{
        name: name
        for name in (
            "log_cosh", "cosine_distance", "cosine_similarity", "softmax_cross_entropy", "sigmoid_focal_loss", "smooth_labels",
            "ntxent",
            "generalized_kl_divergence", "poly_loss_cross_entropy", "ranking_softmax_loss", "perceptron_loss", "sparsemax_loss",
            "multiclass_hinge_loss", "multiclass_perceptron_loss", "multiclass_sparsemax_loss", "make_fenchel_young_loss",
            "dice_loss", "binary_dice_loss", "multiclass_generalized_dice_loss",
        )
    },
}  # fmt: skip
NAMES = {
    **{
        name: name.lower()
        for name in (
            "SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Adafactor", "LBFGS", "Muon",
            "Rprop",
        )
    },
    "partition": "multi_transform",
    "losses": "nnc.nn, which has them",
    "contrib": "the name itself: nnc.optim has all of Optax's contrib",
    "projections": "nnc.optim.projection_simplex and its like",
    "tree": "nnc.optim.tree_utils",
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
    **{name: f"nnc.nn.{own}" for name, own in LOSSES.items()},
    "LambdaLR": "a function from the number of the step as learning_rate",
}  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    """Raises MissingNameError, with nnc's name where `name` is another library's."""
    raise missing_name("nnc.optim", name, NAMES)
