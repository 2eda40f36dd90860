"""Python numbers, and lists of them, that meet float64 arrays keep their 64 bits in the functions of nnc.nn and nnc.random, and
in those of nnc.numpy that NumPy has otherwise.

Each row is evaluated twice: with `p` that leaves numbers as they are, and with one that makes float64 arrays of them.
"""

import numpy as np
import pytest

import nnc
import nnc.nn
import nnc.numpy as nnp
import nnc.scipy.cluster

X = np.array([[0.15, 0.35, 0.55], [0.7, 0.2, 0.9]])
IMAGE = np.linspace(0.05, 0.95, 24).reshape(1, 2, 3, 4)
BOXES = np.array([[0.05, 0.15, 0.75, 0.85], [0.25, 0.35, 0.95, 0.65]])
PAIRS = (
    "cosine_distance", "cosine_similarity", "generalized_kl_divergence", "hinge", "huber", "kl_div", "log_cosh", "mae", "mse",
    "perceptron_loss", "poisson_nll", "ranking_softmax_loss", "sigmoid_cross_entropy", "sigmoid_focal_loss", "smooth_l1",
    "softmax_cross_entropy", "squared_hinge", "hinge_embedding", "poly_loss_cross_entropy",
)  # fmt: skip
LISTED = "p([[0.1, 0.3, 0.7], [0.2, 0.6, 0.9]])"
ROWS = f"""
nn.batch_norm(x, p([0.1, 0.3, 0.7]), p([0.2, 0.6, 0.9]), deterministic=True)
nn.batch_norm(x, p([0.1, 0.3, 0.7]), p([0.2, 0.6, 0.9]), p([0.7, 0.1, 0.3]), p([0.3, 0.1, 0.2]), deterministic=True)
nn.batch_norm(x, p([0.1, 0.3, 0.7]), p([0.2, 0.6, 0.9]), momentum=0.3)
nn.layer_norm(x, p([0.1, 0.3, 0.7]), p([0.2, 0.6, 0.9]), eps=0.1)
nn.rms_norm(x, p([0.1, 0.3, 0.7]), eps=0.1)
nn.group_norm(image, 1, p([0.1, 0.3]), p([0.7, 0.2]))
nn.instance_norm(image, p([0.1, 0.3]), p([0.7, 0.2]))
nn.local_response_norm(image, 2, alpha=0.1, beta=0.3, k=0.7)
nn.binary_dice_loss(x, {LISTED}, smooth=0.1)
nn.binary_dice_loss({LISTED}, x)
nn.dice_loss(image, image, class_weights=p([0.1, 0.3, 0.7, 0.2]), smooth=0.1, alpha=0.3, beta=0.7)
nn.dice_loss(x[..., None], p([[[0.1], [0.3], [0.7]], [[0.2], [0.6], [0.9]]]))
nn.box_iou(boxes, p([[0.1, 0.2, 0.7, 0.9]]))
nn.box_iou(p([[0.1, 0.2, 0.7, 0.9]]), boxes)
nn.celu(x - 0.5, p(0.1))
nn.elu(x - 0.5, p(0.1))
nn.leaky_relu(x - 0.5, p(0.1))
nn.prelu(x - 0.5, p([0.1, 0.3, 0.7]))
nn.prelu(x - 0.5, p(0.1))
nn.conv(image, p([[[[0.1]], [[0.3]]]]))
nn.conv(p([[[[0.1]], [[0.3]]]]), image[:, :, :1, :1])
nn.conv_transpose(image, p([[[[0.1]]], [[[0.3]]]]))
nn.cosine_embedding(x, {LISTED}, p([1.0, -1.0]), margin=0.1)
nn.dot_product_attention(rows, rows, p([[[[0.1, 0.3, 0.7]]], [[[0.2, 0.6, 0.9]]]]))
nn.dot_product_attention(rows, rows, rows, bias=p([[[[0.1]]]]), scale=0.3)
nn.gaussian_nll(x, {LISTED}, p([[0.1, 0.3, 0.7], [0.2, 0.6, 0.9]]))
nn.grid_sample(image, p([[[[0.1, 0.3]]]]))
nn.grid_sample(p([[[[0.1, 0.3]]]]), image[:, :1, :1, :2])
nn.margin_ranking(x, {LISTED}, p([[1, -1, 1], [1, 1, -1]]), margin=0.1)
nn.nll(x, np.asarray([0, 2]), weights=p([0.1, 0.3, 0.7]), reduction="mean")
nn.softmax_cross_entropy(x, np.asarray([0, 2]), weights=p([0.1, 0.3, 0.7]), label_smoothing=0.1)
nn.softmax_cross_entropy({LISTED}, x)
nn.sigmoid_cross_entropy(x, {LISTED}, weights=p([0.1, 0.3, 0.7]), positive_weights=p([0.2, 0.6, 0.9]))
nn.sigmoid_cross_entropy({LISTED}, x)
nn.sigmoid_focal_loss(x, {LISTED}, alpha=0.1, gamma=0.3)
nn.ranking_softmax_loss(x, {LISTED}, weights=p([[0.7, 0.2, 0.1], [0.1, 0.1, 0.3]]))
nn.ntxent(x, np.asarray([0, 0]), p(0.1))
nn.huber(x, {LISTED}, p(0.1))
nn.smooth_l1(x, {LISTED}, p(0.1))
nn.triplet_margin(x, {LISTED}, p([[0.7, 0.2, 0.1], [0.1, 0.1, 0.3]]), margin=0.1, norm_degree=3)
nn.smooth_labels(x, p(0.1))
nn.smooth_labels(x, 0.1, where=np.asarray([True, False, True]))
nn.standardize(x, eps=0.1)
nn.logsumexp(x, b={LISTED})
nn.roi_align(image, p([[0, 0.1, 0.3, 2.7, 1.9]]), 1)
nn.multiclass_generalized_dice_loss(image, image, smooth=0.1)
nn.lp_pool(image, 2, 3.3)
nn.upsample(image, 1.7, method="bilinear")
nnp.fill_diagonal(cov, p(0.1))
nnp.fill_diagonal(cov, p([0.1, 0.3]))
nnp.place(x, x > 0.3, p([0.1, 0.7]))
nnp.put(x, [0, 2], p([0.1, 0.7]))
nnp.put_along_axis(x, np.asarray([[0], [1]]), p(0.1), 1)
nnp.put_along_axis(x, np.asarray([[0], [1]]), p([[0.1], [0.7]]), 1)
nnp.putmask(x, x > 0.3, p([0.1, 0.7]))
nnp.take(x, np.asarray([0, 9]), mode="fill", fill_value=p(0.1))
nnp.unique(x, size=9, fill_value=p(0.1))
nnp.union1d(x, x, size=9, fill_value=p(0.1))
x.at[0].set(p(0.1))
x.at[0].add(p([0.1, 0.3, 0.7]))
x.at[np.asarray([0, 9])].get(mode="fill", fill_value=p(0.1))
x.sum(initial=p(0.1))
x.max(initial=p(0.7))
x.clip(p(0.2), p([0.3, 0.4, 0.5]))
x.dot(p([0.1, 0.3, 0.7]))
nnc.cond(x[0, 0] > 0, lambda x: x * p(0.1), lambda x: x, x)
nnc.dynamic_update_slice(x, p([[0.1]]), (0, 0))
nnc.scipy.cluster.vq.vq(x, p([[0.1, 0.3, 0.7], [0.2, 0.6, 0.9]]))[1]
nnc.fori_loop(0, 3, lambda i, y: y * p(0.1), x)
nnc.scan(lambda c, y: (c + y * p(0.1), c), p(0.1) + x[0], x)
nnc.random.uniform(key, (3,), "float64", p(0.1), p(0.7)) + 0 * x
nnc.random.truncated_normal(key, p(0.1), p(0.7), (3,), "float64") + 0 * x
nnc.random.gamma(key, p(0.1), (3,), "float64") + 0 * x
nnc.random.gamma(key, p([0.1, 0.3, 0.7]), None, "float64") + 0 * x
nnc.random.beta(key, p(0.1), p([0.3, 0.7, 0.9]), None, "float64") + 0 * x
nnc.random.dirichlet(key, p([0.1, 0.3, 0.7]), None, "float64") + 0 * x
nnc.random.t(key, p([0.1, 0.3, 0.7]), None, "float64") + 0 * x
nnc.random.pareto(key, p([0.1, 0.3, 0.7]), None, "float64") + 0 * x
nnc.random.rayleigh(key, p([0.1, 0.3, 0.7]), None, "float64") + 0 * x
nnc.random.wald(key, p([0.1, 0.3, 0.7]), None, "float64") + 0 * x
nnc.random.weibull_min(key, p(0.1), p([0.1, 0.3, 0.7]), (3,), "float64") + 0 * x
nnc.random.triangular(key, p(0.1), p([0.3, 0.2, 0.6]), p(0.7), None, "float64") + 0 * x
nnc.random.lognormal(key, p([0.1, 0.3, 0.7]), None, "float64") + 0 * x
nnc.random.chisquare(key, p([0.1, 0.3, 0.7]), None, "float64") + 0 * x
nnc.random.f(key, p([1.1, 1.3, 1.7]), p(2.1), None, "float64") + 0 * x
nnc.random.generalized_normal(key, p(0.7), (3,), "float64") + 0 * x
nnc.random.loggamma(key, p([0.1, 0.3, 0.7]), None, "float64") + 0 * x
nnc.random.multivariate_normal(key, p([0.1, 0.3]), cov) + 0 * cov
nnc.random.multivariate_normal(key, x[0, :2], p([[0.7, 0.1], [0.1, 0.9]])) + 0 * cov
"""
EXPRESSIONS = [
    *(f"nn.{name}(x, {LISTED})" for name in PAIRS),
    *(f"nn.{name}({LISTED}, x)" for name in PAIRS),
    *ROWS.strip().split("\n"),
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_numbers_that_meet_a_float64_array_keep_its_digits(expression):
    names = {
        "nn": nnc.nn, "nnc": nnc, "nnp": nnp, "np": np,
        "x": nnp.asarray(X), "image": nnp.asarray(IMAGE), "boxes": nnp.asarray(BOXES),
        "rows": nnp.asarray(X)[:, None, None], "cov": nnp.asarray([[0.7, 0.1], [0.1, 0.9]], "float64"),
    }  # fmt: skip
    got = eval(expression, {**names, "key": nnc.random.key(1), "p": lambda x: x})
    want = eval(expression, {**names, "key": nnc.random.key(1), "p": lambda x: nnp.asarray(x, "float64")})
    for one, other in zip(nnc.tree.leaves(got), nnc.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-12, atol=1e-14)
        assert one.dtype == np.float64
