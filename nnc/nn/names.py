"""Names of other libraries: a lookup of one in nnc.nn raises an error that names nnc's."""

from __future__ import annotations

from typing import NoReturn

from nnc.spelling import missing_name

RANKS = (1, 2, 3)
NAMES = {
    # functions
    "swish": "silu",
    "hardswish": "hard_silu",
    "hard_swish": "hard_silu",
    "hardsigmoid": "hard_sigmoid",
    "hardtanh": "hard_tanh",
    "softsign": "soft_sign",
    "logsigmoid": "log_sigmoid",
    "gumbel_softmax": "softmax of logits + nnc.random.gumbel(key, shape)",
    "scaled_dot_product_attention": "dot_product_attention",
    **{f"{name}{n}d": name for name in ("conv", "conv_transpose") for n in RANKS},
    **{f"{name}_pool{n}d": f"{name}_pool" for name in ("max", "avg", "lp", "adaptive_avg", "adaptive_max") for n in RANKS},
    **{f"dropout{n}d": "dropout with shared_axes=..." for n in RANKS},
    "interpolate": "upsample",
    "resize": "upsample",
    # losses
    "cross_entropy": "softmax_cross_entropy",
    "softmax_cross_entropy_with_integer_labels": "softmax_cross_entropy",
    "sigmoid_binary_cross_entropy": "sigmoid_cross_entropy",
    "binary_cross_entropy": "sigmoid_cross_entropy of logits",
    "binary_cross_entropy_with_logits": "sigmoid_cross_entropy",
    "soft_margin_loss": "sigmoid_cross_entropy with labels 0 and 1",
    "l1_loss": "mae",
    "l2_loss": "mse, of which it is the half",
    "squared_error": 'mse with reduction="none"',
    "kl_divergence": "kl_div",
    "kl_divergence_with_log_targets": "kl_div with log_targets=True",
    "convex_kl_divergence": "generalized_kl_divergence",
    "safe_softmax_cross_entropy": "softmax_cross_entropy, in which a class of probability 0 costs nothing",
    "focal_loss": "sigmoid_focal_loss",
    **{
        f"{name}_loss": name
        for name in (
            "nll", "mse", "huber", "smooth_l1", "ctc", "hinge", "hinge_embedding", "cosine_embedding", "margin_ranking",
            "triplet_margin", "poisson_nll", "gaussian_nll",
        )
    },
    # modules
    **{
        f"{name}{n}d": name
        for name in ("Conv", "ConvTranspose", "MaxPool", "AvgPool", "BatchNorm", "InstanceNorm", "Dropout")
        for n in RANKS
    },
    "Dense": "Linear",
    "ModuleList": "Sequential, or a list of layers",
    "Parameter": "Module, whose fields are arrays",
    "MultiheadAttention": "MultiHeadAttention",
    **{name: name.lower() for name in ("ReLU", "GELU", "SiLU", "Mish", "ELU", "Sigmoid", "Tanh", "Softmax", "Softplus")},
    "CrossEntropyLoss": "softmax_cross_entropy",
    "BCEWithLogitsLoss": "sigmoid_cross_entropy",
    "L1Loss": "mae",
    **{f"{name}Loss": own for name, own in (("MSE", "mse"), ("NLL", "nll"), ("CTC", "ctc"), ("KLDiv", "kl_div"))},
}  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    """Raises MissingNameError, with nnc's name where `name` is another library's."""
    raise missing_name("nnc.nn", name, NAMES)
