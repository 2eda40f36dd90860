"""Every function and loss of nnc.nn against PyTorch: values and gradients in every floating-point operand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn

torch = pytest.importorskip("torch")
F = torch.nn.functional


class Case(NamedTuple):
    """The same computation in both libraries on the same arrays; `constants` follow them and get no gradient."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    arrays: tuple[Any, ...]
    constants: tuple[Any, ...] = ()


RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape)


def distinct(*shape: int) -> Any:
    """Elements of which no two are equal: maxima have one winner."""
    return RNG.permutation(int(np.prod(shape))).reshape(shape) / 7.0 - 2.0


def integers(high: int, *shape: int) -> Any:
    return RNG.integers(0, high, shape)


def check(case: Case, dtype: Any, rtol: float, atol: float) -> None:
    arrays = [a.astype(dtype) if a.dtype.kind == "f" else a for a in (*case.arrays, *case.constants)]
    moving = [i for i, a in enumerate(case.arrays) if a.dtype.kind == "f"]
    tensors = [torch.tensor(a, requires_grad=i in moving) for i, a in enumerate(arrays)]

    def function(*floats: Any) -> Any:
        given = list(arrays)
        for i, x in zip(moving, floats, strict=True):
            given[i] = x
        return case.ours(*given)

    want = case.theirs(*tensors)
    value, pull = nnc.vjp(function, *[arrays[i] for i in moving])
    assert value.dtype == dtype
    np.testing.assert_allclose(np.asarray(value), want.detach().numpy(), rtol=rtol, atol=atol)
    ct = np.random.default_rng(1).normal(size=want.shape).astype(dtype)
    wanted = torch.autograd.grad(want, [tensors[i] for i in moving], torch.tensor(ct))
    for ours, theirs in zip(pull(ct), wanted, strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs.numpy(), rtol=rtol, atol=atol)


# -- activations -------------------------------------------------------------------------------------------------------

X = np.concatenate([normal(40) * 4, [-1e3, -30.0, 30.0, 1e3]]).reshape(4, 11)
ACTIVATIONS = [
    ("relu", nn.relu, F.relu),
    ("relu6", nn.relu6, F.relu6),
    ("elu", nn.elu, F.elu),
    ("elu alpha", lambda x: nn.elu(x, 0.3), lambda x: F.elu(x, 0.3)),
    ("celu", lambda x: nn.celu(x, 0.7), lambda x: F.celu(x, 0.7)),
    ("selu", nn.selu, F.selu),
    ("leaky_relu", nn.leaky_relu, F.leaky_relu),
    ("leaky_relu slope", lambda x: nn.leaky_relu(x, 0.3), lambda x: F.leaky_relu(x, 0.3)),
    ("gelu exact", lambda x: nn.gelu(x, approximate=False), F.gelu),
    ("gelu tanh", nn.gelu, lambda x: F.gelu(x, approximate="tanh")),
    ("sigmoid", nn.sigmoid, torch.sigmoid),
    ("log_sigmoid", nn.log_sigmoid, F.logsigmoid),
    ("silu", nn.silu, F.silu),
    ("mish", nn.mish, F.mish),
    ("softplus", nn.softplus, lambda x: F.softplus(x, threshold=1e9)),
    ("soft_sign", nn.soft_sign, F.softsign),
    ("tanh", nn.tanh, torch.tanh),
    ("hard_tanh", nn.hard_tanh, F.hardtanh),
    ("hard_sigmoid", nn.hard_sigmoid, F.hardsigmoid),
    ("hard_silu", nn.hard_silu, F.hardswish),
    ("softmax", nn.softmax, lambda x: F.softmax(x, -1)),
    ("softmax 0", lambda x: nn.softmax(x, axis=0), lambda x: F.softmax(x, 0)),
    ("log_softmax", nn.log_softmax, lambda x: F.log_softmax(x, -1)),
    ("logsumexp", lambda x: nn.logsumexp(x, axis=-1), lambda x: torch.logsumexp(x, -1)),
]
CASES = [
    *(
        Case(name, ours, theirs, (X[:, :10] if name == "softplus" else X,))
        for name, ours, theirs in ACTIVATIONS
    ),
    Case("glu", nn.glu, F.glu, (normal(3, 8),)),
    Case("glu 1", lambda x: nn.glu(x, axis=1), lambda x: F.glu(x, 1), (normal(3, 4, 5),)),
    Case("prelu one", nn.prelu, F.prelu, (normal(3, 4, 5), np.array([0.3]))),
    Case("prelu each", nn.prelu, F.prelu, (normal(3, 4, 5), normal(4))),
    Case("one_hot", lambda x, t: nn.one_hot(x, 5) @ t, lambda x, t: F.one_hot(x, 5).to(t.dtype) @ t,
         (integers(5, 7), normal(5, 3))),
]  # fmt: skip

# -- convolution -------------------------------------------------------------------------------------------------------


def conv_case(rank: int, groups: int, **options: Any) -> Case:
    x, w = normal(2, 4, *(9, 7, 6)[:rank]), normal(6, 4 // groups, *(3, 2, 2)[:rank])
    theirs = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    own = {**options, "padding": options.get("padding", 0)}
    own["padding"] = own["padding"].upper() if isinstance(own["padding"], str) else own["padding"]
    return Case(
        f"conv{rank} groups={groups} {options}",
        lambda x, w: nn.conv(x, w, groups=groups, **own),
        lambda x, w: theirs(x, w, groups=groups, **options),
        (x, w),
    )


def transposed_case(rank: int, groups: int, **options: Any) -> Case:
    x, w = normal(2, 4, *(5, 4, 3)[:rank]), normal(4, 6 // groups, *(3, 2, 2)[:rank])
    theirs = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    return Case(
        f"conv_transpose{rank} groups={groups} {options}",
        lambda x, w: nn.conv_transpose(x, w, groups=groups, **options),
        lambda x, w: theirs(x, w, groups=groups, **options),
        (x, w),
    )


CASES += [
    conv_case(1, 1), conv_case(1, 2, stride=2, padding=1), conv_case(2, 1, stride=(2, 1), padding=(1, 2)),
    conv_case(2, 2, dilation=2, padding=2), conv_case(1, 1, padding="same"), conv_case(2, 1, padding="valid"),
    conv_case(3, 2, stride=2, padding=1, dilation=(1, 2, 1)),
    transposed_case(1, 1, stride=2), transposed_case(2, 2, stride=3, padding=1, output_padding=(2, 1)),
    transposed_case(2, 1, stride=2, dilation=2, padding=(1, 0)), transposed_case(3, 1, stride=2, output_padding=1),
    Case("conv last", lambda x, w: nnp.moveaxis(nn.conv(nnp.moveaxis(x, 1, -1), w, layout="NHWC"), -1, 1), F.conv2d,
         (normal(2, 3, 6, 5), normal(4, 3, 3, 2))),
]  # fmt: skip

# -- pooling -----------------------------------------------------------------------------------------------------------

MAX = (F.max_pool1d, F.max_pool2d, F.max_pool3d)
AVG = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
ADAPTIVE_AVG = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)
ADAPTIVE_MAX = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)


def pool_case(kind: str, ours: Any, theirs: Any, rank: int, window: Any, **options: Any) -> Case:
    return Case(
        f"{kind}{rank} {window} {options}",
        lambda x: ours(x, window, **options),
        lambda x: theirs[rank - 1](x, window, **options),
        (distinct(2, 3, *(9, 8, 7)[:rank]),),
    )


POOLS: list[tuple[int, Any, dict[str, Any]]] = [
    (1, 3, {}), (2, 2, {}), (2, (3, 2), {"stride": (2, 1), "padding": 1}), (3, 2, {"stride": 3}),
    (1, 3, {"stride": 2, "ceil_mode": True}), (2, 3, {"stride": 2, "ceil_mode": True, "padding": 1}),
    (2, 2, {"stride": 3, "ceil_mode": True}), (3, (3, 2, 2), {"padding": 1, "ceil_mode": True}),
]  # fmt: skip
BINS = ((4,), (3, 5), (1, 1), (2, 8, 3))
CASES += [pool_case("max_pool", nn.max_pool, MAX, rank, window, **o) for rank, window, o in POOLS]
CASES += [pool_case("avg_pool", nn.avg_pool, AVG, rank, window, **o) for rank, window, o in POOLS]
CASES += [
    pool_case("avg_pool", nn.avg_pool, AVG, rank, window, count_include_pad=False, **o) for rank, window, o in POOLS
]
CASES += [
    pool_case("max_pool", nn.max_pool, MAX, 2, 3, stride=1, dilation=2),
    pool_case("max_pool", nn.max_pool, MAX, 2, 2, stride=3, dilation=(2, 3), padding=1, ceil_mode=True),
    *(pool_case("adaptive_avg_pool", nn.adaptive_avg_pool, ADAPTIVE_AVG, len(size), size) for size in BINS),
    *(pool_case("adaptive_max_pool", nn.adaptive_max_pool, ADAPTIVE_MAX, len(size), size) for size in BINS),
    Case("lp_pool", partial(nn.lp_pool, window=2, degree=3, stride=1),
         partial(F.lp_pool2d, norm_type=3, kernel_size=2, stride=1), (np.abs(normal(2, 3, 6, 5)),)),
    Case("lp_pool ceil", partial(nn.lp_pool, window=2, ceil_mode=True),
         partial(F.lp_pool1d, norm_type=2, kernel_size=2, ceil_mode=True), (normal(2, 3, 6),)),
    Case("global_avg_pool", nn.global_avg_pool, lambda x: x.mean((2, 3)), (normal(2, 3, 4, 5),)),
    Case("global_max_pool", partial(nn.global_max_pool, keepdims=True), partial(F.adaptive_max_pool2d, output_size=1),
         (distinct(2, 3, 4, 5),)),
]  # fmt: skip

# -- sizes -------------------------------------------------------------------------------------------------------------

IMAGES = {1: (2, 3, 5), 2: (2, 3, 5, 4), 3: (1, 2, 3, 4, 2)}
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


def upsample_case(
    rank: int, method: str, theirs: str, scale: Any = None, size: Any = None, align: bool = False
) -> Case:
    return Case(
        f"upsample{rank} {theirs} {scale} {size} {align}",
        lambda x: nn.upsample(x, scale, size=size, method=method, align_corners=align),
        lambda x: F.interpolate(
            x, size, scale, mode=theirs, align_corners=None if theirs.startswith("nearest") else align
        ),
        (normal(*IMAGES[rank]),),
    )


CASES += [
    upsample_case(rank, method, theirs or LINEAR[rank], **options)
    for method, theirs in (("nearest", "nearest"), ("nearest-exact", "nearest-exact"), ("linear", ""))
    for rank, options in ((1, {"scale": 2}), (2, {"scale": 1.5}), (2, {"size": (3, 9)}), (3, {"size": (4, 7, 2)}))
]
CASES += [
    upsample_case(1, "linear", "linear", 2, align=True), upsample_case(2, "linear", "bilinear", size=(9, 3), align=True),
    upsample_case(2, "linear", "bilinear", size=(1, 7), align=True), upsample_case(2, "cubic", "bicubic", 2.0),
    upsample_case(2, "cubic", "bicubic", size=(3, 9), align=True), upsample_case(2, "nearest", "nearest", (2.0, 3.0)),
    Case("pixel_shuffle", lambda x: nn.pixel_shuffle(x, 2), lambda x: F.pixel_shuffle(x, 2), (normal(2, 8, 3, 4),)),
    Case("pixel_unshuffle", lambda x: nn.pixel_unshuffle(x, 2), lambda x: F.pixel_unshuffle(x, 2), (normal(2, 3, 4, 6),)),
]  # fmt: skip

# -- normalisation, embedding, attention -------------------------------------------------------------------------------

IMAGE, C = normal(3, 6, 4, 5) * 2 + 1, (normal(6), normal(6))
MEAN, VARIANCE = normal(6), np.abs(normal(6)) + 0.5
CASES += [
    Case("layer_norm", nn.layer_norm, lambda x, s, b: F.layer_norm(x, (5,), s, b), (normal(3, 4, 5), normal(5), normal(5))),
    Case("layer_norm 2", partial(nn.layer_norm, axis=(-2, -1), eps=1e-3), partial(F.layer_norm, normalized_shape=(4, 5), eps=1e-3),
         (normal(3, 4, 5),)),
    Case("group_norm", lambda x, s, b: nn.group_norm(x, 3, s, b), lambda x, s, b: F.group_norm(x, 3, s, b), (IMAGE, *C)),
    Case("instance_norm", nn.instance_norm, lambda x, s, b: F.instance_norm(x, weight=s, bias=b), (IMAGE, *C)),
    Case("rms_norm", partial(nn.rms_norm, eps=1e-5), lambda x, s: F.rms_norm(x, (5,), s, 1e-5), (normal(3, 4, 5), normal(5))),
    Case("batch_norm", lambda x, s, b: nn.batch_norm(x, MEAN, VARIANCE, s, b)[0],
         lambda x, s, b: F.batch_norm(x, None, None, s, b, training=True), (IMAGE, *C)),
    Case("batch_norm running", lambda x, m, v, s, b: nn.batch_norm(x, m, v, s, b, deterministic=True)[0],
         lambda x, m, v, s, b: (x - m.view(-1, 1, 1)) / (v.view(-1, 1, 1) + 1e-5).sqrt() * s.view(-1, 1, 1) + b.view(-1, 1, 1),
         (IMAGE, MEAN, VARIANCE, *C)),
    *(
        Case(f"local_response_norm {n}", lambda x, n=n: nn.local_response_norm(x, n, alpha=0.3, beta=0.6, k=2.0),
             lambda x, n=n: F.local_response_norm(x, n, 0.3, 0.6, 2.0), (IMAGE,))
        for n in (1, 2, 5)
    ),
    Case("embedding", nn.embedding, F.embedding, (integers(7, 2, 3), normal(7, 4))),
    Case("embedding padding", lambda i, t: nn.embedding(i, t, padding_index=-6), lambda i, t: F.embedding(i, t, padding_idx=1),
         (np.array([[1, 2], [6, 1]]), normal(7, 4))),
]  # fmt: skip


def attention_case(name: str, ours: dict[str, Any], theirs: dict[str, Any], heads: int = 4, *arrays: Any) -> Case:
    def reference(q: Any, k: Any, v: Any, *bias: Any) -> Any:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        mask = {"attn_mask": bias[0]} if bias else {}
        return F.scaled_dot_product_attention(q, k, v, **mask, **theirs).transpose(1, 2)

    given = (normal(2, 7, 4, 5), normal(2, 9, heads, 5), normal(2, 9, heads, 5), *arrays)
    return Case(f"attention {name}", lambda *xs: nn.dot_product_attention(*xs, **ours), reference, given)


MASK = RNG.random((2, 1, 7, 9)) < 0.6
MASK[..., 0] = True
for chunk in (None, 4):
    CASES += [
        attention_case(f"plain {chunk}", {"chunk_size": chunk}, {}),
        attention_case(f"causal {chunk}", {"chunk_size": chunk, "is_causal": True}, {"is_causal": True}),
        attention_case(f"scale {chunk}", {"chunk_size": chunk, "scale": 0.3}, {"scale": 0.3}),
        attention_case(f"bias {chunk}", {"chunk_size": chunk}, {}, 4, normal(1, 4, 7, 9)),
        attention_case(f"mask {chunk}", {"chunk_size": chunk, "mask": MASK}, {"attn_mask": torch.tensor(MASK)}),
        attention_case(f"grouped {chunk}", {"chunk_size": chunk}, {"enable_gqa": True}, 2),
    ]

# -- losses ------------------------------------------------------------------------------------------------------------

PREDICTIONS, TARGETS, SIGNS = normal(4, 5) * 2, normal(4, 5), np.where(normal(4, 5) > 0, 1.0, -1.0)
LOGITS, CLASSES, SOFT = normal(6, 5) * 3, integers(5, 6), np.abs(normal(6, 5))
SOFT /= SOFT.sum(-1, keepdims=True)
WEIGHTS, SPARSE = np.abs(normal(5)), np.array([0, 3, -100, 2, 1, -100])
DENSE, DENSE_CLASSES = normal(2, 5, 3, 4), integers(5, 2, 3, 4)
ROWS, ONES = (normal(4, 5), normal(4, 5), normal(4, 5)), np.array([1.0, -1.0, 1.0, -1.0])
POSITIVE, LOG_SOFT = (np.abs(PREDICTIONS) + 0.1, np.abs(TARGETS) * 3), np.log(np.flip(SOFT, 0))


def weighted(loss: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """A loss that takes the classes' weights as its third operand, as PyTorch's do."""
    return lambda x, y, w, **reduction: loss(x, y, weights=w, **options, **reduction)


def weighted_sigmoid(x: Any, y: Any, w: Any, p: Any, **reduction: Any) -> Any:
    return nn.sigmoid_cross_entropy(x, y, weights=w, positive_weights=p, **reduction)


def weighted_logits(x: Any, y: Any, w: Any, p: Any, **reduction: Any) -> Any:
    return F.binary_cross_entropy_with_logits(x, y, w, pos_weight=p, **reduction)


def soft_margin(x: Any, y: Any, **reduction: Any) -> Any:
    return nn.sigmoid_cross_entropy(x, (y + 1) / 2, **reduction)


PAIR, SPARSE_LABELS, DENSE_LABELS = (PREDICTIONS, TARGETS), (LOGITS, SPARSE), (DENSE, DENSE_CLASSES)
LOSSES: list[tuple[str, Any, Any, tuple[Any, ...], tuple[Any, ...]]] = [
    ("mse", nn.mse, F.mse_loss, PAIR, ()),
    ("mae", nn.mae, F.l1_loss, PAIR, ()),
    ("huber", partial(nn.huber, delta=0.75), partial(F.huber_loss, delta=0.75), PAIR, ()),
    ("smooth_l1", partial(nn.smooth_l1, beta=0.5), partial(F.smooth_l1_loss, beta=0.5), PAIR, ()),
    ("smooth_l1 0", partial(nn.smooth_l1, beta=0), partial(F.smooth_l1_loss, beta=0.0), PAIR, ()),
    ("cross entropy", nn.softmax_cross_entropy, F.cross_entropy, (LOGITS, CLASSES), ()),
    ("cross entropy axis", partial(nn.softmax_cross_entropy, axis=1), F.cross_entropy, DENSE_LABELS, ()),
    ("cross entropy weights", weighted(nn.softmax_cross_entropy, ignore_index=-100), F.cross_entropy, SPARSE_LABELS, (WEIGHTS,)),
    ("cross entropy smooth", weighted(nn.softmax_cross_entropy, ignore_index=-100, label_smoothing=0.25),
     partial(F.cross_entropy, label_smoothing=0.25), SPARSE_LABELS, (WEIGHTS,)),
    ("cross entropy soft", weighted(nn.softmax_cross_entropy, label_smoothing=0.25),
     partial(F.cross_entropy, label_smoothing=0.25), (LOGITS, SOFT), (WEIGHTS,)),
    ("nll", weighted(nn.nll, axis=1, ignore_index=3), partial(F.nll_loss, ignore_index=3), DENSE_LABELS, (WEIGHTS,)),
    ("sigmoid", nn.sigmoid_cross_entropy, F.binary_cross_entropy_with_logits, (LOGITS * 20, SOFT), ()),
    ("sigmoid weights", weighted_sigmoid, weighted_logits, (LOGITS, SOFT), (np.abs(normal(6, 1)), WEIGHTS)),
    ("soft margin", soft_margin, F.soft_margin_loss, (PREDICTIONS,), (SIGNS,)),
    ("hinge_embedding", partial(nn.hinge_embedding, margin=0.75),
     partial(F.hinge_embedding_loss, margin=0.75), (PREDICTIONS,), (SIGNS,)),
    ("margin_ranking", partial(nn.margin_ranking, margin=0.25), partial(F.margin_ranking_loss, margin=0.25), PAIR, (SIGNS,)),
    ("cosine_embedding", partial(nn.cosine_embedding, margin=0.125),
     partial(F.cosine_embedding_loss, margin=0.125), ROWS[:2], (ONES,)),
    ("triplet_margin", partial(nn.triplet_margin, margin=2.0), partial(F.triplet_margin_loss, margin=2.0), ROWS, ()),
    ("triplet_margin swap", partial(nn.triplet_margin, norm_degree=1, swap=True, margin=9.0),
     partial(F.triplet_margin_loss, p=1, swap=True, margin=9.0), ROWS, ()),
    ("poisson_nll", nn.poisson_nll, F.poisson_nll_loss, (PREDICTIONS, SOFT[:4]), ()),
    ("poisson_nll full", partial(nn.poisson_nll, log_input=False, full=True),
     partial(F.poisson_nll_loss, log_input=False, full=True),
     POSITIVE[:1], POSITIVE[1:]),
    ("gaussian_nll", partial(nn.gaussian_nll, full=True), partial(F.gaussian_nll_loss, full=True), (*PAIR, POSITIVE[0]), ()),
]  # fmt: skip
CASES += [
    Case(f"{name} {how}", partial(ours, reduction=how), partial(theirs, reduction=how), arrays, constants)
    for name, ours, theirs, arrays, constants in LOSSES
    for how in ("none", "sum", "mean")
]
CASES += [
    Case("kl_div", nn.kl_div, lambda x, y: F.kl_div(x, y, reduction="none").sum(-1), (LOG_SOFT, SOFT)),
    Case("kl_div mean", partial(nn.kl_div, reduction="mean"), partial(F.kl_div, reduction="batchmean"), (LOG_SOFT, SOFT)),
    Case("kl_div logarithms", partial(nn.kl_div, log_targets=True, reduction="sum"),
         partial(F.kl_div, log_target=True, reduction="sum"), (LOG_SOFT, np.log(SOFT))),
    Case("cosine_similarity", nn.cosine_similarity, partial(F.cosine_similarity, dim=-1), ROWS[:2]),
    Case("cosine_distance", partial(nn.cosine_distance, axis=0), lambda x, y: 1 - F.cosine_similarity(x, y, 0), ROWS[:2]),
]  # fmt: skip


def ctc_case(name: str, blank: int, steps: Any, sizes: Any, labels: Any, how: Any = "none") -> Case:
    def theirs(x: Any, y: Any) -> Any:
        log_p = F.log_softmax(x, -1).transpose(0, 1)
        return F.ctc_loss(log_p, y, torch.tensor(steps), torch.tensor(sizes), blank, reduction=how)

    ours = lambda x, y: nn.ctc(x, y, np.array(steps), np.array(sizes), blank=blank, reduction=how)
    return Case(f"ctc {name}", ours, theirs, (normal(3, 8, 5) * 2, np.array(labels)))


CASES += [
    ctc_case("plain", 0, [8, 8, 8], [3, 3, 3], [[1, 2, 3], [4, 4, 1], [2, 2, 2]]),
    ctc_case("lengths", 0, [8, 5, 3], [3, 2, 1], [[1, 1, 3], [4, 4, 1], [2, 1, 1]]),
    ctc_case("mean", 0, [8, 7, 6], [0, 1, 3], [[1, 1, 3], [4, 4, 1], [2, 1, 1]], "mean"),
    ctc_case("blank", 4, [8, 7, 6], [0, 1, 3], [[1, 2, 3], [0, 3, 1], [2, 2, 1]]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_and_gradients_are_those_of_pytorch(case: Case) -> None:
    check(case, np.float64, 1e-7, 2e-8)  # PyTorch holds settings such as 1 / 6 and label_smoothing in float32


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_single_precision_agrees_to_its_own_accuracy(case: Case) -> None:
    check(case, np.float32, 2e-4, 2e-5)


def test_running_statistics_are_those_of_pytorch() -> None:
    mean, variance = torch.tensor(MEAN.copy()), torch.tensor(VARIANCE.copy())
    F.batch_norm(torch.tensor(IMAGE), mean, variance, training=True, momentum=0.3)
    _, (new_mean, new_variance) = nn.batch_norm(IMAGE, MEAN, VARIANCE, momentum=0.7)
    np.testing.assert_allclose(np.asarray(new_mean), mean.numpy())
    np.testing.assert_allclose(np.asarray(new_variance), variance.numpy())
