"""Calls of other libraries' functions whose results the code of their rows must give, on small operands.

python -m tests.unit.errors.names.record       writes their results to recorded.json, where torch, jax and optax are installed

A case is the call, and the operands that differ from the common ones. A row that is a bare name is called with the arguments of
the case. The suite reads recorded.json, and needs none of these libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """A call of another library, and operands of its own."""

    call: str
    operands: Mapping[str, Any] = {}


def wave(*shape: int, step: float = 1.7) -> Any:
    """Distinct numbers from -1 to 1 in no order."""
    return np.sin(step * np.arange(1, np.prod(shape, dtype=int) + 1)).reshape(shape).astype("float32")


X, Y, POSITIVE = wave(3, 3), wave(3, 3, step=2.3), np.abs(wave(3, 3, step=0.9)) + 0.3
SPREAD = POSITIVE @ POSITIVE.T + np.eye(3, dtype="float32")
COMMON = {
    "x": X, "y": Y, "a": POSITIVE, "b": Y[:, :2], "v": X[0], "i": np.asarray([[2, 0, 0], [1, 1, 2], [0, 2, 2]]), "n": 3, "k": 2,
    "mask": X > 0, "value": 0.5, "low": -0.2, "high": 0.6, "p": 0.4, "weight": 0.3, "axis": 1, "axes": (1, 0), "shape": (3, 3),
    "slope": np.asarray([0.1, 0.2, 0.3], "float32"), "arrays": [X, Y], "start": 1, "length": 2, "stop": 5, "source": 0,
    "destination": 1, "q": 0.3, "j": 1, "values": X, "bins": 4, "step": 1, "dtype": "float32",
}  # fmt: skip
VECTORS = {"x": X[0], "y": Y[0], "a": X[1], "b": Y[1], "v": X[2]}
LINE = {"x": np.asarray([0.1, 0.4, 0.4, 0.9, 0.2, 0.2, 0.7], "float32")}
IMAGES = {"x": wave(2, 3, 6, 6), "y": wave(2, 3, 6, 6, step=0.7)}
COMPLEX = {"x": (X + 1j * Y).astype("complex64")}
INTEGERS = {"x": np.asarray([7, -7, 12]), "y": np.asarray([2, 3, 5])}
ON = {"x": POSITIVE}
SQUARE = {"x": SPREAD}
CHECKED = np.arange(9).reshape(3, 3) % 2 == 0

_OF_ONE = (
    "abs amax amin angle asin atan ceil cos cosh count_nonzero deg2rad erf erfc exp exp2 expm1 floor isfinite isinf isnan "
    "lgamma mean nan_to_num nanmean nansum ones_like prod rad2deg ravel round sign sin sinc sinh square sum tan tanh "
    "trace tril triu trunc unique zeros_like diag diagonal diff argmax argmin argsort argwhere any all real std var "
    "rot90 corrcoef cov squeeze nonzero frac acos relu sigmoid sgn erfinv msort t max min aminmax flatten std_mean var_mean "
    "selu celu norm neg numel is_complex is_floating_point adjoint"
)
_ON_POSITIVE = "digamma log log10 log1p log2 reciprocal sqrt rsqrt"
_OF_TWO = (
    "atan2 copysign dist eq fmax fmin fmod ge gt heaviside hypot inner isclose allclose kron le logaddexp lt matmul maximum "
    "minimum mm mul ne nextafter remainder sub div floor_divide equal tensordot complex polar cdist "
    "logical_and logical_or logical_xor pairwise_distance"
)
TORCH: dict[str, Case] = {
    **{name: Case(f"torch.{name}(x)") for name in _OF_ONE.split()},
    **{name: Case(f"torch.{name}(x)", ON) for name in _ON_POSITIVE.split()},
    **{name: Case(f"torch.{name}(x, y)") for name in _OF_TWO.split()},
    **{name: Case(f"torch.{name}((x, y))") for name in ("vstack", "hstack", "column_stack", "stack", "concatenate")},
    **{name: Case(f"torch.{name}(arrays)") for name in ("cat", "concat", "row_stack")},
    **{name: Case(f"torch.{name}(x, 1)") for name in ("cumprod", "cumsum", "logsumexp", "amax", "amin")},
    **{name: Case(f"torch.{name}(x, 1)[0]") for name in ("max", "min", "cummax", "cummin")},
    **{name: Case(f"torch.{name}(x)") for name in ("logical_not", "matrix_exp")},
    **{name: Case(f"torch.{name}(x)", SQUARE) for name in ("cholesky", "det", "inverse", "pinverse", "slogdet", "logdet")},
    "chain_matmul": Case("torch.chain_matmul(*arrays)"),
    "isin": Case("torch.isin(x, y)", INTEGERS),
    "trapezoid": Case("torch.trapezoid(x)"),
    "trapz": Case("torch.trapz(y)"),
    "gradient": Case("torch.gradient(x)"),
    "quantile": Case("torch.quantile(x, 0.3, 1)"),
    "roll": Case("torch.roll(x, 1, 0)"),
    "flip": Case("torch.flip(x, (0, 1))"),
    "tile": Case("torch.tile(x, (2, 1))"),
    "take": Case("torch.take(x, i)"),
    "where": Case("torch.where(mask, x, y)"),
    "vander": Case("torch.vander(x)", VECTORS),
    "searchsorted": Case("torch.searchsorted(x, y)", {"x": np.sort(X[0]), "y": Y}),
    "bincount": Case("torch.bincount(x)", {"x": np.asarray([0, 2, 2, 5])}),
    "pow": Case("torch.pow(x, 3)"),
    "linspace": Case("torch.linspace(0, 2, 5)"),
    "logspace": Case("torch.logspace(0, 2, 5)"),
    "arange": Case("torch.arange(1, 7, 2)"),
    "range": Case("torch.range(start, stop)"),
    "full": Case("torch.full((2, 3), 0.5)"),
    "full_like": Case("torch.full_like(x, 0.5)"),
    "eye": Case("torch.eye(3, 4)"),
    "einsum": Case("torch.einsum('ij,kj->ik', x, y)"),
    "moveaxis": Case("torch.moveaxis(x, 0, 1)"),
    "movedim": Case("torch.movedim(x, source, destination)"),
    "reshape": Case("torch.reshape(x, (1, 9))"),
    "broadcast_to": Case("torch.broadcast_to(x, (2, 3, 3))"),
    "histogram": Case("torch.histogram(x, 4)"),
    "histc": Case("torch.histc(x, bins)"),
    "conj": Case("torch.conj(x).resolve_conj()", COMPLEX),
    "imag": Case("torch.imag(x)", COMPLEX),
    "addcdiv": Case("torch.addcdiv(x, a, b, value=value)", {"a": Y, "b": POSITIVE}),
    "addcmul": Case("torch.addcmul(x, a, b, value=value)", {"b": Y}),
    "addmm": Case("torch.addmm(x, a, b)", {"b": Y}),
    "addmv": Case("torch.addmv(x, a, v)", {"x": X[1]}),
    "addr": Case("torch.addr(x, a, b)", {"a": X[1], "b": Y[1]}),
    "baddbmm": Case("torch.baddbmm(x, a, b)", {"x": wave(2, 3, 3), "a": wave(2, 3, 4), "b": wave(2, 4, 3)}),
    "cross": Case("torch.cross(x, y)", {"x": wave(4, 3), "y": wave(4, 3, step=2.3)}),
    "frobenius_norm": Case("torch.frobenius_norm(x, (0, 1))"),
    "dot": Case("torch.dot(x, y)", VECTORS),
    "outer": Case("torch.outer(x, y)", VECTORS),
    "vdot": Case("torch.vdot(x, y)", VECTORS),
    "ger": Case("torch.ger(x, y)", VECTORS),
    "mv": Case("torch.mv(x, y)", {"y": Y[0]}),
    "bmm": Case("torch.bmm(x, y)", {"x": wave(2, 3, 4), "y": wave(2, 4, 3)}),
    "chunk": Case("torch.chunk(x, n)", {"x": wave(6, 2)}),
    "clamp": Case("torch.clamp(x, low, high)"),
    "clamp_min": Case("torch.clamp_min(x, low)"),
    "clamp_max": Case("torch.clamp_max(x, high)"),
    "diag_embed": Case("torch.diag_embed(x)"),
    "gather": Case("torch.gather(x, 1, i)"),
    "take_along_dim": Case("torch.take_along_dim(x, i, 0)"),
    "igamma": Case("torch.igamma(a, x)", ON),
    "igammac": Case("torch.igammac(a, x)", ON),
    "index_add": Case("torch.index_add(x, 0, i, y)", {"i": np.asarray([2, 0, 2])}),
    "index_copy": Case("torch.index_copy(x, 0, i, y)", {"i": np.asarray([2, 0, 1])}),
    "index_fill": Case("torch.index_fill(x, 0, i, value)", {"i": np.asarray([2, 0])}),
    "index_put": Case("torch.index_put(x, (i, j), y)", {"i": np.asarray([2, 0]), "j": np.asarray([1, 1]), "y": Y[0, :2]}),
    "index_select": Case("torch.index_select(x, 0, i)", {"i": np.asarray([2, 0, 2])}),
    "kthvalue": Case("torch.kthvalue(x, k)[0]"),
    "lerp": Case("torch.lerp(x, y, weight)"),
    "log_softmax": Case("torch.log_softmax(x, -1)"),
    "softmax": Case("torch.softmax(x, -1)"),
    "logcumsumexp": Case("torch.logcumsumexp(x, 0)"),
    "lstsq": Case("torch.linalg.lstsq(a, b)[0]", {"a": wave(4, 3), "b": wave(4, 2)}),
    "masked_fill": Case("torch.masked_fill(x, mask, value)"),
    "masked_select": Case("torch.masked_select(x, mask)"),
    "masked_scatter": Case("torch.masked_scatter(x, mask, values)", {"mask": CHECKED, "values": wave(5)}),
    "matrix_power": Case("torch.matrix_power(x, n)"),
    "matrix_rank": Case("torch.linalg.matrix_rank(x)"),
    "narrow": Case("torch.narrow(x, 0, start, length)"),
    "permute": Case("torch.permute(x, axes)"),
    "prelu": Case("torch.prelu(x, slope)"),
    "qr": Case("torch.qr(x)", {"x": POSITIVE[:, :2]}),
    "svd": Case("(lambda u, s, v: (u, s, v.mT))(*torch.svd(x))", SQUARE),
    "repeat_interleave": Case("torch.repeat_interleave(x, n, 0)"),
    "scatter": Case("torch.scatter(x, 1, i, y)", {"i": np.asarray([[2, 0, 1], [1, 0, 2], [0, 1, 2]])}),
    "scatter_add": Case("torch.scatter_add(x, 1, i, y)"),
    "scatter_reduce": Case("torch.scatter_reduce(x, 1, i, y, 'amax')"),
    "swapdims": Case("torch.swapdims(x, 0, 1)", {"i": 0}),
    "transpose": Case("torch.transpose(x, 0, 1)", {"i": 0}),
    "tensor_split": Case("torch.tensor_split(x, n)", {"x": wave(7, 2)}),
    "topk": Case("torch.topk(x, k)"),
    "triangular_solve": Case("torch.triangular_solve(b, a)[0]"),
    "unbind": Case("torch.unbind(x)"),
    "unflatten": Case("torch.unflatten(x, 0, shape)", {"x": wave(6), "shape": (2, 3)}),
    "unique_consecutive": Case("torch.unique_consecutive(x)", LINE),
    "unsqueeze": Case("torch.unsqueeze(x, axis)"),
    "sort": Case("torch.sort(x)"),
    "median": Case("torch.median(x)"),  # of nine numbers: of an even number PyTorch takes the lower, as the note says
    "meshgrid": Case("torch.meshgrid(x, y, indexing='ij')", VECTORS),
    "cartesian_prod": Case("torch.cartesian_prod(x, y)", VECTORS),
    "block_diag": Case("torch.block_diag(x, y)"),
    "broadcast_tensors": Case("torch.broadcast_tensors(x, y)", {"y": Y[0]}),
    "bucketize": Case("torch.bucketize(x, boundaries)", {"boundaries": np.asarray([-0.5, 0.0, 0.5], "float32")}),
    "view_as_real": Case("torch.view_as_real(x)", COMPLEX),
    "view_as_complex": Case("torch.view_as_complex(x)", {"x": wave(3, 2)}),
    "angle": Case("torch.angle(x)", COMPLEX),
    "sgn": Case("torch.sgn(x)", COMPLEX),
    "norm": Case("torch.norm(x)", {"x": wave(2, 3, 4)}),
    "dist": Case("torch.dist(x, y)", {"x": wave(2, 3, 4), "y": wave(2, 3, 4, step=0.3)}),
    "conv1d": Case("torch.conv1d(x, w)", {"x": wave(2, 3, 6), "w": wave(4, 3, 2)}),
    "conv2d": Case("torch.conv2d(x, w)", {**IMAGES, "w": wave(4, 3, 2, 2)}),
    "conv3d": Case("torch.conv3d(x, w)", {"x": wave(1, 2, 3, 3, 3), "w": wave(2, 2, 2, 2, 2)}),
    "embedding": Case("torch.embedding(table, i)", {"table": X}),
    "layer_norm": Case("torch.layer_norm(x, (3,))"),
    "batch_norm": Case(
        "torch.batch_norm(x, None, None, mean, variance, False, 0.1, 1e-5, False)",
        {"mean": X[0], "variance": POSITIVE[0]},
    ),
}  # fmt: skip

TENSOR: dict[str, Case] = {
    "cross": Case("x.cross(y)", {"x": wave(4, 3), "y": wave(4, 3, step=2.3)}),
    "cummax": Case("x.cummax(1)[0]"),
    "cummin": Case("x.cummin(1)[0]"),
    "expand": Case("x.expand(shape)", {"x": X[0]}),
    "expand_as": Case("x.expand_as(y)", {"x": X[0]}),
    "fill_": Case("x.clone().fill_(value)"),
    "zero_": Case("x.clone().zero_()"),
    "copy_": Case("x.clone().copy_(y)"),
    "flip": Case("x.flip(axis)"),
    "roll": Case("x.roll(n, axis)", {"n": 1}),
    "H": Case("x.H.resolve_conj()", COMPLEX),
    "mH": Case("x.mH.resolve_conj()", COMPLEX),
    "new_full": Case("x.new_full(shape, value)"),
    "new_ones": Case("x.new_ones(shape)"),
    "quantile": Case("x.quantile(q)"),
    "reshape_as": Case("x.reshape_as(y)", {"y": Y.reshape(1, 9)}),
    "tile": Case("x.tile(n)"),
    "unfold": Case("x.unfold(0, n, step)", {"x": LINE["x"], "step": 2}),
    "view": Case("x.view(shape)", {"shape": (1, 9)}),
    "where": Case("x.where(mask, y)"),
    "add_": Case("x.clone().add_(y)"),
    "sub_": Case("x.clone().sub_(y)"),
    "mul_": Case("x.clone().mul_(y)"),
    "div_": Case("x.clone().div_(y)"),
    "clamp_": Case("x.clone().clamp_(low, high)"),
    "masked_fill_": Case("x.clone().masked_fill_(mask, value)"),
    "dim": Case("torch.tensor(x.dim())"),
    "nelement": Case("torch.tensor(x.nelement())"),
    "element_size": Case("torch.tensor(x.element_size())"),
    "rot90": Case("x.rot90()"),
    "diff": Case("x.diff()"),
    "outer": Case("x.outer(y)", VECTORS),
    "remainder": Case("x.remainder(y)"),
    "fmod": Case("x.fmod(y)"),
}
LINALG: dict[str, Case] = {
    "matrix_exp": Case("torch.linalg.matrix_exp(x)"),
    "cholesky_ex": Case("torch.linalg.cholesky_ex(x)[0]", SQUARE),
    "inv_ex": Case("torch.linalg.inv_ex(x)[0]", SQUARE),
    "solve_ex": Case("torch.linalg.solve_ex(a, b)[0]", {"a": SPREAD}),
    "vander": Case("torch.linalg.vander(x)", VECTORS),
    "solve_triangular": Case("torch.linalg.solve_triangular(a, b, upper=True)"),
    "lu": Case("torch.linalg.lu(x)", SQUARE),
}

_LOGITS = {"logits": wave(4, 3), "labels": np.asarray([2, 0, 1, 1])}
_SIGNS = {"targets": np.asarray([1, -1, 1], "float32")}
_TRIPLET = {"anchors": X, "positives": Y, "negatives": POSITIVE}
FUNCTIONAL: dict[str, Case] = {
    **{
        f"{kind}{rank}d": Case(f"F.{kind}{rank}d(x, w)", {"x": wave(2, 2, *(4,) * rank), "w": wave(2, 2, *(2,) * rank)})
        for kind in ("conv", "conv_transpose")
        for rank in (1, 2, 3)
    },
    **{
        f"{kind}_pool{rank}d": Case(f"F.{kind}_pool{rank}d(x, {arguments})", {"x": POSITIVE[0, 0] + wave(2, 2, *(4,) * rank)})
        for kind, arguments in (("max", "2"), ("avg", "2"), ("lp", "2, 2"), ("adaptive_avg", "1"), ("adaptive_max", "1"))
        for rank in (1, 2, 3)
    },
    **{
        name: Case(f"F.{name}(x)")
        for name in (
            "hardswish", "hardsigmoid", "hardtanh", "softsign", "logsigmoid", "tanhshrink", "hardshrink", "softshrink"
        )
    },
    "softmin": Case("F.softmin(x, -1)"),
    "threshold": Case("F.threshold(x, t, value)", {"t": 0.2}),
    "linear": Case("F.linear(x, w, b)", {"w": wave(2, 3), "b": wave(2)}),
    "normalize": Case("F.normalize(x)", {"x": np.concatenate([X, np.zeros((1, 3), "float32")])}),
    "pairwise_distance": Case("F.pairwise_distance(x, y)", {"y": X}),
    "nll_loss": Case("F.nll_loss(log_probabilities, labels)", {"log_probabilities": wave(4, 3), **_LOGITS}),
    "mse_loss": Case("F.mse_loss(x, y)"),
    "huber_loss": Case("F.huber_loss(x, y)", {"x": 3 * X}),
    "smooth_l1_loss": Case("F.smooth_l1_loss(x, y)", {"x": 3 * X}),
    "l1_loss": Case("F.l1_loss(x, y)"),
    "hinge_embedding_loss": Case("F.hinge_embedding_loss(x, targets)", {"x": X[0], **_SIGNS}),
    "cosine_embedding_loss": Case("F.cosine_embedding_loss(x, y, targets)", _SIGNS),
    "margin_ranking_loss": Case("F.margin_ranking_loss(x, y, targets)", {"x": X[0], "y": Y[0], **_SIGNS}),
    "triplet_margin_loss": Case("F.triplet_margin_loss(anchors, positives, negatives)", _TRIPLET),
    "poisson_nll_loss": Case("F.poisson_nll_loss(x, targets)", {"targets": POSITIVE}),
    "gaussian_nll_loss": Case("F.gaussian_nll_loss(x, targets, variances)", {"targets": Y, "variances": POSITIVE}),
    "kl_div": Case(
        "F.kl_div(log_predictions, targets, reduction='batchmean')", {"log_predictions": X, "targets": POSITIVE}
    ),
    "ctc_loss": Case(
        "F.ctc_loss(logits.transpose(0, 1).log_softmax(-1), labels, logit_lengths, label_lengths)",
        {"logits": wave(2, 5, 4), "labels": np.asarray([[1, 2], [3, 3]]), "logit_lengths": np.asarray([5, 4]),
         "label_lengths": np.asarray([2, 1])},
    ),
    "cross_entropy": Case("F.cross_entropy(logits, labels)", _LOGITS),
    "binary_cross_entropy": Case("F.binary_cross_entropy(logits.sigmoid(), labels)", {"logits": X, "labels": POSITIVE / 2}),
    "binary_cross_entropy_with_logits": Case(
        "F.binary_cross_entropy_with_logits(logits, labels)", {"logits": X, "labels": POSITIVE / 2}
    ),
    "soft_margin_loss": Case(
        "F.soft_margin_loss(logits, 2 * labels - 1)", {"logits": X, "labels": (Y > 0).astype("float32")}
    ),
    "embedding_bag": Case("F.embedding_bag(i, table)", {"table": X}),
    "interpolate": Case("F.interpolate(x, scale_factor=2)", IMAGES),
    "upsample_bilinear": Case("F.interpolate(x, scale_factor=2, mode='bilinear', align_corners=True)", IMAGES),
    "upsample_nearest": Case("F.interpolate(x, scale_factor=2)", IMAGES),
    "pad": Case("F.pad(x, (1, 1))"),
    "scaled_dot_product_attention": Case(
        "F.scaled_dot_product_attention(*(z.transpose(1, 2) for z in (q, k, v))).transpose(1, 2)",
        {"q": wave(2, 4, 2, 3), "k": wave(2, 5, 2, 3), "v": wave(2, 5, 2, 3, step=0.3)},
    ),
    "affine_grid": Case(
        "F.affine_grid(theta, (2, 1, 2, 2), align_corners=True)",
        {"theta": wave(2, 2, 3), "grid": np.asarray([[[-1, -1, 1], [1, -1, 1]], [[-1, 1, 1], [1, 1, 1]]], "float32")},
    ),
}  # fmt: skip

_OF_ONE_NN = "ReLU ReLU6 SiLU Mish ELU CELU SELU Sigmoid Tanh Softplus LeakyReLU LogSigmoid Hardswish Hardsigmoid Hardtanh Softsign"
_EDGES = {
    "ReflectionPad2d": "1",
    "ReplicationPad2d": "1",
    "CircularPad2d": "1",
    "ZeroPad2d": "1",
    "ConstantPad2d": "1, value",
}
NN: dict[str, Case] = {
    **{name: Case(f"torch.nn.{name}()(x)", {"x": 3 * X}) for name in _OF_ONE_NN.split()},
    **{name: Case(f"torch.nn.{name}(dim=-1)(x)") for name in ("Softmax", "LogSoftmax", "Softmin")},
    **{name: Case(f"torch.nn.{name}()(x)") for name in ("Hardshrink", "Softshrink", "Tanhshrink")},
    "GLU": Case("torch.nn.GLU()(x)", {"x": wave(3, 4)}),
    **{name: Case(f"torch.nn.{name}({given})(x)", IMAGES) for name, given in _EDGES.items()},
    "CosineSimilarity": Case("torch.nn.CosineSimilarity()(x, y)"),
    "PairwiseDistance": Case("torch.nn.PairwiseDistance()(x, y)", {"y": X}),
    "LocalResponseNorm": Case("torch.nn.LocalResponseNorm(5)(x)", {"x": 9 * wave(2, 7, 2, 2)}),
    "PixelShuffle": Case("torch.nn.PixelShuffle(2)(x)", {"x": wave(1, 8, 2, 2)}),
    "PixelUnshuffle": Case("torch.nn.PixelUnshuffle(2)(x)", IMAGES),
    "Upsample": Case("torch.nn.Upsample(scale_factor=2)(x)", IMAGES),
    "UpsamplingNearest2d": Case("torch.nn.UpsamplingNearest2d(scale_factor=2)(x)", IMAGES),
    "UpsamplingBilinear2d": Case("torch.nn.UpsamplingBilinear2d(scale_factor=2)(x)", IMAGES),
    "ChannelShuffle": Case("torch.nn.ChannelShuffle(groups)(x)", {"x": wave(2, 6, 2, 2), "groups": 2}),
    "Bilinear": Case("F.bilinear(x, y, w, b)", {"w": wave(2, 3, 3), "b": wave(2)}),
    "AdaptiveMaxPool2d": Case("torch.nn.AdaptiveMaxPool2d(1)(x)", IMAGES),
    "LPPool2d": Case("torch.nn.LPPool2d(2, 2)(x)", {"x": 2 + wave(2, 2, 4, 4)}),
    "EmbeddingBag": FUNCTIONAL["embedding_bag"],
    "Softmax2d": Case("torch.nn.Softmax2d()(x)", IMAGES),
    **{
        name: Case(case.call.replace(f"F.{of}(", f"torch.nn.{name}()("), case.operands)
        for name, of in {
            "NLLLoss": "nll_loss", "MSELoss": "mse_loss", "HuberLoss": "huber_loss", "SmoothL1Loss": "smooth_l1_loss",
            "L1Loss": "l1_loss", "HingeEmbeddingLoss": "hinge_embedding_loss", "CosineEmbeddingLoss": "cosine_embedding_loss",
            "MarginRankingLoss": "margin_ranking_loss", "TripletMarginLoss": "triplet_margin_loss",
            "PoissonNLLLoss": "poisson_nll_loss", "GaussianNLLLoss": "gaussian_nll_loss", "CTCLoss": "ctc_loss",
            "CrossEntropyLoss": "cross_entropy", "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
            "BCELoss": "binary_cross_entropy", "SoftMarginLoss": "soft_margin_loss",
        }.items()
        for case in (FUNCTIONAL[of],)
    },
}  # fmt: skip

_COUNTS = {"steps": 5}
OPTIM: dict[str, Case] = {
    "ConstantLR": Case("rates(S.ConstantLR, total_iters=5)"),
    "LinearLR": Case("rates(S.LinearLR, total_iters=steps)", _COUNTS),
    "StepLR": Case("rates(S.StepLR, steps)", _COUNTS),
    "MultiStepLR": Case("rates(S.MultiStepLR, [30, 80])"),
    "ExponentialLR": Case("rates(S.ExponentialLR, 0.95)"),
    "PolynomialLR": Case("rates(S.PolynomialLR, steps)", _COUNTS),
    "CosineAnnealingLR": Case("rates(S.CosineAnnealingLR, steps)", _COUNTS),
    **{
        name: Case(f"trained(torch.optim.{name}, {given})")
        for name, given in {
            "SGD": "lr=0.1, momentum=0.9", "Adam": "lr=1e-3", "AdamW": "lr=1e-3", "NAdam": "lr=2e-3", "RAdam": "lr=1e-3",
            "Adamax": "lr=2e-3", "Adagrad": "lr=1e-2", "Adadelta": "lr=1.0", "RMSprop": "lr=1e-2", "Rprop": "lr=1e-2",
        }.items()
    },
}  # fmt: skip

_LAX_ONE = (
    "abs asinh atan cbrt ceil cos cosh erf erfc exp exp2 expm1 floor is_finite neg "
    "sign sin sinh square tan tanh logistic erf_inv log1p reciprocal"
)
_LAX_TWO = "add atan2 div eq ge gt le lt max min mul ne nextafter pow rem sub batch_matmul dot"
LAX: dict[str, Case] = {
    **{name: Case(f"lax.{name}(x)") for name in _LAX_ONE.split()},
    **{name: Case(f"lax.{name}(x)", ON) for name in ("log", "sqrt", "rsqrt", "lgamma", "digamma")},
    **{name: Case(f"lax.{name}(x, y)", ON) for name in _LAX_TWO.split()},
    **{name: Case(f"lax.{name}(x)") for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")},
    **{
        f"reduce_{name}": Case(f"lax.reduce_{name}(x, (axis,))")
        for name in ("sum", "prod", "max", "min")
    },
    "bessel_i0e": Case("lax.bessel_i0e(x)", {"x": np.asarray([-200, -1, 0, 1, 100], "float32")}),
    "bessel_i1e": Case("lax.bessel_i1e(x)", {"x": np.asarray([-200, -1, 0, 1, 100], "float32")}),
    "dynamic_slice": Case("lax.dynamic_slice(x, starts, sizes)", {"starts": (1, 0), "sizes": (2, 2)}),
    "dynamic_update_slice": Case("lax.dynamic_update_slice(x, update, starts)", {"starts": (1, 0), "update": Y[:2, :2]}),
    "dynamic_slice_in_dim": Case("lax.dynamic_slice_in_dim(x, start, length)"),
    "dynamic_update_slice_in_dim": Case(
        "lax.dynamic_update_slice_in_dim(x, update, start, 0)", {"update": Y[:2]}
    ),
    "dynamic_index_in_dim": Case("lax.dynamic_index_in_dim(x, i)", {"i": 2}),
    "dynamic_update_index_in_dim": Case("lax.dynamic_update_index_in_dim(x, row, i, 0)", {"i": 2, "row": Y[0]}),
    "index_in_dim": Case("lax.index_in_dim(x, i)", {"i": 2}),
    "slice_in_dim": Case("lax.slice_in_dim(x, start, stop)", {"stop": 3}),
    "select": Case("lax.select(pred, x, y)", {"pred": X > 0}),
    "select_n": Case("lax.select_n(pred, x, y)", {"pred": X > 0}),
    "clamp": Case("lax.clamp(low, x, high)"),
    "rem": Case("lax.rem(x, y)", INTEGERS),
    "integer_pow": Case("lax.integer_pow(x, 3)"),
    "population_count": Case("lax.population_count(x)", {"x": np.asarray([7, 12, 255])}),
    "shift_left": Case("lax.shift_left(x, y)", INTEGERS),
    "shift_right_arithmetic": Case("lax.shift_right_arithmetic(x, y)", INTEGERS),
    "shift_right_logical": Case("lax.shift_right_logical(x, y)", {k: np.asarray(v, "int32") for k, v in INTEGERS.items()}),
    "complex": Case("lax.complex(x, y)"),
    "iota": Case("lax.iota('int32', n)"),
    "rev": Case("lax.rev(x, axes)"),
    "sort": Case("lax.sort(x)"),
    "sort_key_val": Case("lax.sort_key_val(x, y)", VECTORS),
    "top_k": Case("lax.top_k(x, 2)"),
    "approx_max_k": Case("lax.approx_max_k(x, k)"),
    "approx_min_k": Case("lax.approx_min_k(x, k)"),
    "conv": Case("lax.conv(x, w, (1, 1), 'VALID')", {**IMAGES, "w": wave(4, 3, 2, 2)}),
    "conv_transpose": Case(
        "lax.conv_transpose(x, w, (1, 1), 'VALID', dimension_numbers=('NCHW', 'IOHW', 'NCHW'))",
        {**IMAGES, "w": wave(3, 4, 2, 2)},
    ),
    "dot_general": Case("lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,))))", {"x": wave(2, 3, 4), "y": wave(2, 4, 3)}),
    "mulhi": Case("lax.mulhi(x, y)", {name: np.asarray([2**30, -(2**29), 7], "int32") for name in "xy"}),
    "broadcast_like": Case("jax.numpy.broadcast_to(x, y.shape)", {"x": X[0]}),
    "igamma": Case("lax.igamma(a, x)", ON),
    "igammac": Case("lax.igammac(a, x)", ON),
    "reduce_precision": Case("lax.reduce_precision(x, 8, 7)"),
    "pad": Case("lax.pad(x, value, ((1, 1, 0), (0, 0, 0)))", {"value": np.float32(0.5)}),
    "transpose": Case("lax.transpose(x, (1, 0))"),
    "expand_dims": Case("lax.expand_dims(x, (1,))"),
    "squeeze": Case("lax.squeeze(x, (0,))", {"x": wave(1, 3)}),
    "broadcast": Case("lax.broadcast(x, (2,))", {"shape": (2, 3, 3)}),
    "reshape": Case("lax.reshape(x, (1, 9))"),
    "scatter_apply": Case("x.at[i].apply(f)", {"i": 1, "f": abs}),
}  # fmt: skip
JAX_NN: dict[str, Case] = {
    "swish": Case("jax.nn.swish(x)"),
    "hard_swish": Case("jax.nn.hard_swish(x)"),
    "log1mexp": Case("jax.nn.log1mexp(x)", {"x": np.asarray([1e-4, 0.1, 1, 15, 30], "float32")}),
    "logmeanexp": Case("jax.nn.logmeanexp(x)"),
    "squareplus": Case("jax.nn.squareplus(x, b)", {"b": 4.0}),
    "sparse_sigmoid": Case("jax.nn.sparse_sigmoid(x)", {"x": 3 * X}),
}
_PREDICTIONS = {"x": np.log(POSITIVE), "y": POSITIVE / 2}
OPTAX: dict[str, Case] = {
    "l2_loss": Case("optax.l2_loss(x, y)"),
    "squared_error": Case("optax.squared_error(x, y)"),
    "huber_loss": Case("optax.huber_loss(x, y)", {"x": 3 * X}),
    "hinge_loss": Case("optax.hinge_loss(x, y)", {"y": np.sign(Y)}),
    "kl_divergence": Case("optax.kl_divergence(x, y)", _PREDICTIONS),
    "kl_divergence_with_log_targets": Case("optax.losses.kl_divergence_with_log_targets(x, y)"),
    "convex_kl_divergence": Case("optax.convex_kl_divergence(x, y)", _PREDICTIONS),
    "triplet_margin_loss": Case("optax.losses.triplet_margin_loss(anchors, positives, negatives)", _TRIPLET),
    "softmax_cross_entropy_with_integer_labels": Case(
        "optax.softmax_cross_entropy_with_integer_labels(logits, labels)", _LOGITS
    ),
    "safe_softmax_cross_entropy": Case("optax.safe_softmax_cross_entropy(logits, labels)", {"logits": X, "labels": POSITIVE}),
    "sigmoid_binary_cross_entropy": Case(
        "optax.sigmoid_binary_cross_entropy(logits, labels)", {"logits": X, "labels": POSITIVE / 2}
    ),
    "focal_loss": Case("optax.sigmoid_focal_loss(logits, labels)", {"logits": X, "labels": (Y > 0).astype("float32")}),
    **{
        name: Case("optax.safe_increment(x)", {"x": np.asarray([0, 7, 2**31 - 2, 2**31 - 1], "int32"), "limit": 2**31 - 1})
        for name in ("safe_increment", "safe_int32_increment")
    },
    "safe_norm": Case("optax.safe_norm(x, 0.1)"),
    "scale_gradient": Case("optax.scale_gradient(x, s)", {"s": 0.3}),
    "bias_correction": Case("optax.bias_correction(moment, 0.9, count)", {"moment": X, "count": 3}),
    "update_moment": Case("optax.update_moment(updates, moment, 0.9, 1)", {"updates": X, "moment": Y}),
    "polyak_averaging": Case("optax.incremental_update(new, old, 0.01)", {"new": X, "old": Y}),
    "safe_root_mean_squares": Case("optax.safe_root_mean_squares(x, 0.0)"),
    "power_iteration": Case("optax.power_iteration(x, num_iters=500, error_tolerance=1e-9)[0]", SQUARE),
}  # fmt: skip

CASES: dict[tuple[str, str], Case] = {
    (source, name): case
    for source, cases in {
        "torch": TORCH, "torch.Tensor": TENSOR, "torch.linalg": LINALG, "torch.nn.functional": FUNCTIONAL, "torch.nn": NN,
        "torch.optim": OPTIM, "jax.lax": LAX, "jax.nn": JAX_NN, "optax": OPTAX,
    }.items()
    for name, case in cases.items()
}  # fmt: skip
