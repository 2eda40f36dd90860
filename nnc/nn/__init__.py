"""Functional pytree models: activations, losses, normalisation, convolution, and layers as frozen dataclasses."""

from typing import TYPE_CHECKING

from nnc.errors.names import module_getattr
from nnc.nn import initializers, models
from nnc.nn.activations import (
    celu,
    elu,
    gelu,
    glu,
    hard_sigmoid,
    hard_silu,
    hard_tanh,
    leaky_relu,
    log_sigmoid,
    log_softmax,
    mish,
    prelu,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    soft_sign,
    softmax,
    softplus,
    standardize,
    tanh,
)
from nnc.nn.alignment import ctc
from nnc.nn.attention import dot_product_attention
from nnc.nn.classification import kl_div, nll, sigmoid_cross_entropy, softmax_cross_entropy
from nnc.nn.convolution import AdaptiveAvgPool, AvgPool, Conv, ConvTranspose, GlobalAvgPool, GlobalMaxPool, MaxPool
from nnc.nn.detection import box_iou, nms, roi_align
from nnc.nn.encoding import embedding, one_hot
from nnc.nn.focal import (
    generalized_kl_divergence,
    ntxent,
    poly_loss_cross_entropy,
    ranking_softmax_loss,
    sigmoid_focal_loss,
    smooth_labels,
)
from nnc.nn.interpolation import pixel_shuffle, pixel_unshuffle, upsample
from nnc.nn.layers import (
    MLP,
    Checkpoint,
    Dropout,
    Embedding,
    Flatten,
    Identity,
    Lambda,
    Linear,
    PReLU,
    Sequential,
)
from nnc.nn.losses import (
    cosine_distance,
    cosine_embedding,
    cosine_similarity,
    gaussian_nll,
    hinge,
    hinge_embedding,
    huber,
    log_cosh,
    mae,
    margin_ranking,
    mse,
    poisson_nll,
    smooth_l1,
    squared_hinge,
    triplet_margin,
)
from nnc.nn.margins import (
    make_fenchel_young_loss,
    multiclass_hinge_loss,
    multiclass_perceptron_loss,
    multiclass_sparsemax_loss,
    perceptron_loss,
    sparsemax_loss,
)
from nnc.nn.module import Module, field, inference_mode
from nnc.nn.multihead import KVCache, MultiHeadAttention
from nnc.nn.normalization import batch_norm, group_norm, instance_norm, layer_norm, local_response_norm, rms_norm
from nnc.nn.norms import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm
from nnc.nn.parallel import (
    ColumnParallelLinear,
    RowParallelLinear,
    VocabParallelEmbedding,
    tensor_parallel,
)
from nnc.nn.paths import Tied, assign, cast, combine, parameters, partition, tie, trainable
from nnc.nn.pooling import (
    adaptive_avg_pool,
    adaptive_max_pool,
    avg_pool,
    global_avg_pool,
    global_max_pool,
    lp_pool,
    max_pool,
)
from nnc.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, LSTMState, RNNCell
from nnc.nn.reparametrization import SpectralNorm, WeightNorm
from nnc.nn.rotary import RotaryEmbedding
from nnc.nn.running import Run, is_stateful
from nnc.nn.sampling import grid_sample
from nnc.nn.segmentation import binary_dice_loss, dice_loss, multiclass_generalized_dice_loss
from nnc.nn.stochastic import dropout
from nnc.nn.summaries import LayerRow, Summary, summary
from nnc.nn.torch_weights import load_torch
from nnc.nn.transformer import (
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from nnc.nn.windows import conv, conv_transpose
from nnc.numpy import logsumexp

__all__ = [
    "GRU",
    "LSTM",
    "MLP",
    "RNN",
    "AdaptiveAvgPool",
    "AvgPool",
    "BatchNorm",
    "Checkpoint",
    "ColumnParallelLinear",
    "Conv",
    "ConvTranspose",
    "Dropout",
    "Embedding",
    "Flatten",
    "GRUCell",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "GroupNorm",
    "Identity",
    "InstanceNorm",
    "KVCache",
    "LSTMCell",
    "LSTMState",
    "Lambda",
    "LayerNorm",
    "LayerRow",
    "Linear",
    "MaxPool",
    "Module",
    "MultiHeadAttention",
    "PReLU",
    "RMSNorm",
    "RNNCell",
    "RotaryEmbedding",
    "RowParallelLinear",
    "Run",
    "Sequential",
    "SpectralNorm",
    "Summary",
    "Tied",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "VocabParallelEmbedding",
    "WeightNorm",
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "assign",
    "avg_pool",
    "batch_norm",
    "binary_dice_loss",
    "box_iou",
    "cast",
    "celu",
    "combine",
    "conv",
    "conv_transpose",
    "cosine_distance",
    "cosine_embedding",
    "cosine_similarity",
    "ctc",
    "dice_loss",
    "dot_product_attention",
    "dropout",
    "elu",
    "embedding",
    "field",
    "gaussian_nll",
    "gelu",
    "generalized_kl_divergence",
    "global_avg_pool",
    "global_max_pool",
    "glu",
    "grid_sample",
    "group_norm",
    "hard_sigmoid",
    "hard_silu",
    "hard_tanh",
    "hinge",
    "hinge_embedding",
    "huber",
    "inference_mode",
    "initializers",
    "instance_norm",
    "is_stateful",
    "kl_div",
    "layer_norm",
    "leaky_relu",
    "load_torch",
    "local_response_norm",
    "log_cosh",
    "log_sigmoid",
    "log_softmax",
    "logsumexp",
    "lp_pool",
    "mae",
    "make_fenchel_young_loss",
    "margin_ranking",
    "max_pool",
    "mish",
    "models",
    "mse",
    "multiclass_generalized_dice_loss",
    "multiclass_hinge_loss",
    "multiclass_perceptron_loss",
    "multiclass_sparsemax_loss",
    "nll",
    "nms",
    "ntxent",
    "one_hot",
    "parameters",
    "partition",
    "perceptron_loss",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll",
    "poly_loss_cross_entropy",
    "prelu",
    "ranking_softmax_loss",
    "relu",
    "relu6",
    "rms_norm",
    "roi_align",
    "selu",
    "sigmoid",
    "sigmoid_cross_entropy",
    "sigmoid_focal_loss",
    "silu",
    "smooth_l1",
    "smooth_labels",
    "soft_sign",
    "softmax",
    "softmax_cross_entropy",
    "softplus",
    "sparsemax_loss",
    "squared_hinge",
    "standardize",
    "summary",
    "tanh",
    "tensor_parallel",
    "tie",
    "trainable",
    "triplet_margin",
    "upsample",
]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # to which a name that is not there would be one of type NoReturn
    __getattr__ = module_getattr("nnc.nn")
