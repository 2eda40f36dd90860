"""PyTorch's layers, activations and losses, and nnc's names."""

from __future__ import annotations

from nnc.errors.names.rows import Rows

_RANKS = {1: "'NCH'", 2: "'NCHW'", 3: "'NCDHW'"}
_PADS = {
    "Zero": "", "Constant": ", constant_values=value", "Reflection": ", mode='reflect'", "Replication": ", mode='edge'",
    "Circular": ", mode='wrap'",
}  # fmt: skip
_SIZED = ("nnc.nn.Linear", "sizes are given when a layer is made")
_LOSSES = {
    "nll": "nll(log_probabilities, labels, axis=1, reduction='mean')",
    "mse": "mse(x, y)",
    "huber": "huber(x, y)",
    "smooth_l1": "smooth_l1(x, y)",
    "l1": "mae(x, y)",
    "ctc": "ctc(logits, labels, logit_lengths, label_lengths, reduction='mean')",
    "hinge_embedding": "hinge_embedding(x, targets, reduction='mean')",
    "cosine_embedding": "cosine_embedding(x, y, targets, reduction='mean')",
    "margin_ranking": "margin_ranking(x, y, targets, reduction='mean')",
    "triplet_margin": "triplet_margin(anchors, positives, negatives, reduction='mean')",
    "poisson_nll": "poisson_nll(x, targets, reduction='mean')",
    "gaussian_nll": "gaussian_nll(x, targets, variances, reduction='mean')",
}
_LOSS_CLASSES = {
    "nll": "NLL", "mse": "MSE", "huber": "Huber", "smooth_l1": "SmoothL1", "l1": "L1", "ctc": "CTC",
    "hinge_embedding": "HingeEmbedding", "cosine_embedding": "CosineEmbedding", "margin_ranking": "MarginRanking",
    "triplet_margin": "TripletMargin", "poisson_nll": "PoissonNLL", "gaussian_nll": "GaussianNLL",
}  # fmt: skip
_ACTIVATIONS = {
    "ReLU": "relu", "ReLU6": "relu6", "SiLU": "silu", "Mish": "mish", "ELU": "elu", "CELU": "celu", "SELU": "selu",
    "GLU": "glu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Softmax": "softmax", "Softplus": "softplus", "LeakyReLU": "leaky_relu",
    "LogSigmoid": "log_sigmoid", "LogSoftmax": "log_softmax", "Hardswish": "hard_silu", "Hardsigmoid": "hard_sigmoid",
    "Hardtanh": "hard_tanh", "Softsign": "soft_sign",
}  # fmt: skip

FUNCTIONAL: Rows = {
    **{
        f"{name}{n}d": f"nnc.nn.{name}(x, w, layout={at})"
        for name in ("conv", "conv_transpose")
        for n, at in _RANKS.items()
    },
    **{
        f"{name}_pool{n}d": f"nnc.nn.{name}_pool(x, 2, layout={at})"
        for name in ("max", "avg")
        for n, at in _RANKS.items()
    },
    **{f"lp_pool{n}d": f"nnc.nn.lp_pool(x, 2, layout={at})" for n, at in _RANKS.items()},
    **{
        f"adaptive_{name}_pool{n}d": f"nnc.nn.adaptive_{name}_pool(x, {(1,) * n if n > 1 else 1}, layout={at})"
        for name in ("avg", "max")
        for n, at in _RANKS.items()
    },
    **{f"dropout{n}d": f"nnc.nn.dropout(key, x, rate, shared_axes={tuple(range(2, 2 + n))})" for n in _RANKS},
    **{f"{name}_loss": f"nnc.nn.{own}" for name, own in _LOSSES.items()},
    "kl_div": ("nnc.nn.kl_div(log_predictions, targets, reduction='mean')", "as `batchmean` of PyTorch"),
    "linear": "x @ w.T + b",
    "hardswish": "nnc.nn.hard_silu(x)",
    "hardsigmoid": "nnc.nn.hard_sigmoid(x)",
    "hardtanh": "nnc.nn.hard_tanh(x)",
    "softsign": "nnc.nn.soft_sign(x)",
    "logsigmoid": "nnc.nn.log_sigmoid(x)",
    "softmin": "nnc.nn.softmax(-x)",
    "tanhshrink": "x - nnc.numpy.tanh(x)",
    "hardshrink": "nnc.numpy.where(nnc.numpy.abs(x) > 0.5, x, 0)",
    "softshrink": "nnc.numpy.sign(x) * nnc.nn.relu(nnc.numpy.abs(x) - 0.5)",
    "threshold": "nnc.numpy.where(x > t, x, value)",
    "gumbel_softmax": "nnc.nn.softmax(logits + nnc.random.gumbel(key, logits.shape))",
    "normalize": "x / nnc.numpy.maximum(nnc.numpy.linalg.norm(x, axis=1, keepdims=True), 1e-12)",
    "scaled_dot_product_attention": ("nnc.nn.dot_product_attention(q, k, v)", "heads stand before the last axis"),
    "multi_head_attention_forward": "nnc.nn.MultiHeadAttention(features, heads, key=key)",
    "interpolate": ("nnc.nn.upsample(x, 2)", "`mode='bilinear'` is `method='linear'`"),
    "upsample_bilinear": "nnc.nn.upsample(x, 2, method='linear', align_corners=True)",
    "upsample_nearest": "nnc.nn.upsample(x, 2)",
    "pad": ("nnc.numpy.pad(x, ((0, 0), (1, 1)))", "pairs stand in the order of the axes"),
    "cross_entropy": "nnc.nn.softmax_cross_entropy(logits, labels, axis=1, reduction='mean')",
    "binary_cross_entropy": (
        "nnc.nn.sigmoid_cross_entropy(logits, labels, reduction='mean')",
        "of logits, not of probabilities",
    ),
    "binary_cross_entropy_with_logits": "nnc.nn.sigmoid_cross_entropy(logits, labels, reduction='mean')",
    "soft_margin_loss": ("nnc.nn.sigmoid_cross_entropy(logits, labels, reduction='mean')", "with labels 0 and 1"),
    "pairwise_distance": "nnc.numpy.linalg.norm(x - y + 1e-6, axis=-1)",
    "embedding_bag": "nnc.numpy.mean(nnc.nn.embedding(i, table), axis=-2)",
    "affine_grid": "nnc.numpy.einsum('nij,hwj->nhwi', theta, grid)",
}

NN: Rows = {
    **{f"Conv{n}d": f"nnc.nn.Conv(3, 8, 3, key=key, layout={at})" for n, at in _RANKS.items()},
    **{f"ConvTranspose{n}d": f"nnc.nn.ConvTranspose(3, 8, 3, key=key, layout={at})" for n, at in _RANKS.items()},
    **{f"{name}Pool{n}d": f"nnc.nn.{name}Pool(2, layout={at})" for name in ("Max", "Avg") for n, at in _RANKS.items()},
    **{f"AdaptiveAvgPool{n}d": f"nnc.nn.AdaptiveAvgPool({n}, layout={at})" for n, at in _RANKS.items()},
    **{
        f"AdaptiveMaxPool{n}d": f"nnc.nn.adaptive_max_pool(x, {(1,) * n if n > 1 else 1}, layout={at})"
        for n, at in _RANKS.items()
    },
    **{f"LPPool{n}d": f"nnc.nn.lp_pool(x, 2, layout={at})" for n, at in _RANKS.items()},
    **{
        f"{name}Pad{n}d": f"nnc.numpy.pad(x, {((0, 0),) * 2 + ((1, 1),) * n}{how})"
        for n in _RANKS
        for name, how in _PADS.items()
    },
    **{f"Lazy{name}{n}d": _SIZED for name in ("Conv", "ConvTranspose", "BatchNorm", "InstanceNorm") for n in _RANKS},
    **{
        name: FUNCTIONAL[own]
        for name, own in {
            "Hardshrink": "hardshrink",
            "Softshrink": "softshrink",
            "Tanhshrink": "tanhshrink",
            "Threshold": "threshold",
            "Softmin": "softmin",
            "EmbeddingBag": "embedding_bag",
        }.items()
    },
    **{f"InstanceNorm{n}d": "nnc.nn.InstanceNorm(8)" for n in _RANKS},
    **{f"BatchNorm{n}d": ("nnc.nn.BatchNorm(8)", "its momentum is 1 minus PyTorch's") for n in _RANKS},
    **{f"Dropout{n}d": f"nnc.nn.Dropout(0.5, shared_axes={tuple(range(2, 2 + n))})" for n in _RANKS},
    **{name: f"nnc.nn.{own}" for name, own in _ACTIVATIONS.items()},
    **{f"{name}Loss": f"nnc.nn.{_LOSSES[own]}" for own, name in _LOSS_CLASSES.items()},
    "KLDivLoss": ("nnc.nn.kl_div(log_predictions, targets, reduction='mean')", "as `batchmean` of PyTorch"),
    "GELU": ("nnc.nn.gelu", "`nnc.nn.gelu(x, approximate=False)` is PyTorch's default"),
    "CrossEntropyLoss": "nnc.nn.softmax_cross_entropy(logits, labels, axis=1, reduction='mean')",
    "BCEWithLogitsLoss": "nnc.nn.sigmoid_cross_entropy(logits, labels, reduction='mean')",
    "BCELoss": ("nnc.nn.sigmoid_cross_entropy(logits, labels, reduction='mean')", "of logits, not of probabilities"),
    "SoftMarginLoss": ("nnc.nn.sigmoid_cross_entropy(logits, labels, reduction='mean')", "with labels 0 and 1"),
    "CosineSimilarity": "nnc.nn.cosine_similarity(x, y)",
    "PairwiseDistance": "nnc.numpy.linalg.norm(x - y + 1e-6, axis=-1)",
    "ModuleList": ("nnc.nn.Sequential(f, g)", "or a list of layers as a field"),
    "ModuleDict": ("nnc.nn.Module", "with a dict of layers as a field"),
    "Parameter": ("nnc.nn.Module", "fields that are arrays are its parameters"),
    "ParameterList": ("nnc.nn.Module", "with a list of arrays as a field"),
    "ParameterDict": ("nnc.nn.Module", "with a dict of arrays as a field"),
    "Buffer": "nnc.nn.field(state=True)",
    "MultiheadAttention": "nnc.nn.MultiHeadAttention(features, heads, key=key)",
    "Transformer": ("nnc.nn.TransformerEncoder", "and `nnc.nn.TransformerDecoder`"),
    "LocalResponseNorm": "nnc.nn.local_response_norm(x, 5)",
    "PixelShuffle": "nnc.nn.pixel_shuffle(x, 2)",
    "PixelUnshuffle": "nnc.nn.pixel_unshuffle(x, 2)",
    "Upsample": "nnc.nn.upsample(x, 2)",
    "UpsamplingNearest2d": "nnc.nn.upsample(x, 2)",
    "UpsamplingBilinear2d": "nnc.nn.upsample(x, 2, method='linear', align_corners=True)",
    "SyncBatchNorm": ("nnc.nn.BatchNorm(8, axis_name='data')", "within `nnc.distributed.data_parallel`"),
    "Bilinear": "nnc.numpy.einsum('bi,oij,bj->bo', x, w, y) + b",
    "ChannelShuffle": "x.reshape(len(x), groups, -1, *x.shape[2:]).swapaxes(1, 2).reshape(x.shape)",
    "Softmax2d": "nnc.nn.softmax(x, axis=1)",
    "Unflatten": "nnc.numpy.reshape(x, shape)",
    "functional": "nnc.nn",
    "init": "nnc.nn.initializers",
    "utils": (
        "nnc.nn.WeightNorm(layer)",
        "or `nnc.nn.SpectralNorm`; gradients are clipped by `nnc.optim.clip_by_global_norm`",
    ),
    **dict.fromkeys(
        ("DataParallel", "DistributedDataParallel"),
        ("nnc.distributed.data_parallel(step, batch_argnums=(1, 2))", "each process takes its part of the batch"),
    ),
    "RNNBase": "nnc.nn.RNN",
    "LazyLinear": _SIZED,
    "weight_norm": "nnc.nn.WeightNorm(layer)",
    "spectral_norm": "nnc.nn.SpectralNorm(layer, key=key)",
}

INIT: Rows = {
    "kaiming_normal_": "nnc.nn.initializers.he_normal()",
    "kaiming_uniform_": "nnc.nn.initializers.he_uniform()",
    "xavier_normal_": "nnc.nn.initializers.glorot_normal()",
    "xavier_uniform_": "nnc.nn.initializers.glorot_uniform()",
    "kaiming_normal": "nnc.nn.initializers.he_normal()",
    "kaiming_uniform": "nnc.nn.initializers.he_uniform()",
    "xavier_normal": "nnc.nn.initializers.glorot_normal()",
    "xavier_uniform": "nnc.nn.initializers.glorot_uniform()",
    "normal_": "nnc.nn.initializers.normal(0.02)",
    "uniform_": "nnc.nn.initializers.uniform(0.1)",
    "trunc_normal_": "nnc.nn.initializers.truncated_normal(0.02)",
    "constant_": "nnc.nn.initializers.constant(0.5)",
    "zeros_": "nnc.nn.initializers.zeros",
    "eye_": "nnc.numpy.eye(n)",
    "ones_": "nnc.nn.initializers.ones",
    "orthogonal_": "nnc.nn.initializers.orthogonal()",
    "calculate_gain": "nnc.nn.initializers.variance_scaling(2.0, 'fan_in', 'normal')",
}
