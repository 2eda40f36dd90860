"""Operators of ai.onnx.ml give the results of `onnx.reference` and of onnxruntime, each where it has the operator rightly."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import nnc
from nnc.errors import FileFormatError

ML = "ai.onnx.ml"
POST = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
WORDS = ["ant", "bee", "cat"]


def model_of(operator: str, operands: list[Any], outputs: int, version: int, **attributes: Any) -> onnx.ModelProto:
    names = [f"x{index}" for index in range(len(operands))]
    node = helper.make_node(operator, names, [f"y{index}" for index in range(outputs)], domain=ML, **attributes)
    inputs = [
        helper.make_tensor_value_info(
            name, onnx.TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
        )
        for name, x in zip(names, operands, strict=True)
    ]
    graph = helper.make_graph(
        [node], "one", inputs, [helper.make_empty_tensor_value_info(name) for name in node.output]
    )
    imports = [helper.make_opsetid("", 20), helper.make_opsetid(ML, version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def check(
    operator: str, *operands: Any, outputs: int = 1, version: int = 3, reference: bool = True, runtime: bool = True,
    bound: float = 1e-5, **attributes: Any,
) -> Any:  # fmt: skip
    arrays = [np.asarray(x) for x in operands]
    model = model_of(operator, arrays, outputs, version, **attributes)
    feeds = {f"x{index}": x for index, x in enumerate(arrays)}
    loaded = nnc.onnx.load(model.SerializeToString())
    found = [np.asarray(value) for value in loaded(feeds)]
    engines = []
    if reference:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            engines.append(ReferenceEvaluator(model).run(None, feeds))
    if runtime:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        engines.append(onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds))
    for wanted in engines:
        for value, other in zip(found, map(np.asarray, wanted), strict=True):
            if value.dtype.kind == "f":
                np.testing.assert_allclose(value.reshape(other.shape), other, bound, bound)
            else:
                np.testing.assert_array_equal(value.ravel(), other.ravel())
    return loaded


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def trees_of(seed: int, modes: list[str], *, count: int = 4, depth: int = 4, features: int = 5) -> dict[str, list[Any]]:
    """Random trees: each node is a leaf by chance, and at the last level."""
    rng = np.random.default_rng(seed)
    names = (
        "treeids",
        "nodeids",
        "featureids",
        "values",
        "modes",
        "truenodeids",
        "falsenodeids",
        "missing_value_tracks_true",
    )
    found: dict[str, list[Any]] = {f"nodes_{name}": [] for name in names}

    def grow(tree: int, level: int) -> int:
        number = len([t for t in found["nodes_treeids"] if t == tree])
        place = len(found["nodes_treeids"])
        is_leaf = level == depth or (level > 1 and rng.random() < 0.3)
        mode = "LEAF" if is_leaf else modes[int(rng.integers(len(modes)))]
        split = float(np.round(rng.standard_normal(), 1))
        row = (tree, number, int(rng.integers(features)), split, mode, 0, 0, int(rng.integers(2)))
        for name, value in zip(names, row, strict=True):
            found[f"nodes_{name}"].append(value)
        if not is_leaf:
            found["nodes_truenodeids"][place] = grow(tree, level + 1)
            found["nodes_falsenodeids"][place] = grow(tree, level + 1)
        return number

    for tree in range(count):
        grow(tree, 0)
    return found


def leaves_of(trees: dict[str, list[Any]], what: str, targets: int, seed: int) -> dict[str, list[Any]]:
    """One or two weights for each leaf of a regressor, one for each class of a classifier."""
    rng = np.random.default_rng(seed)
    rows = []
    for tree, node, mode in zip(trees["nodes_treeids"], trees["nodes_nodeids"], trees["nodes_modes"], strict=True):
        if mode == "LEAF":
            drawn = set(rng.integers(0, targets, 2).tolist()) if what == "target" else range(targets)
            for target in sorted(drawn):
                rows.append((tree, node, target, float(np.round(rng.standard_normal(), 2))))
    keys = ("treeids", "nodeids", "ids", "weights")
    return {f"{what}_{key}": [row[i] for row in rows] for i, key in enumerate(keys)}


def inputs_of(trees: dict[str, list[Any]], rows: int, seed: int = 0) -> Any:
    """Rows with numbers that equal splits, and NaN."""
    x = np.round(draw(rows, 5, seed=seed), 1)
    x[0, :] = np.float32(trees["nodes_values"][0])
    if "BRANCH_NEQ" not in trees["nodes_modes"]:  # there onnxruntime follows the comparison, and not the standard
        x[1, ::2] = np.nan
    return x


LEQ = ["BRANCH_LEQ"]
ALL = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


@pytest.mark.parametrize("modes", [LEQ, ["BRANCH_LT"], ALL], ids=["leq", "lt", "all"])
@pytest.mark.parametrize("join", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("seed", range(3))
def test_regressors_of_trees(modes: list[str], join: str, seed: int) -> None:
    trees = trees_of(seed, modes)
    weights = leaves_of(trees, "target", 2, seed)
    base = {"base_values": [0.5, -1.0]} if seed == 1 and join == "SUM" else {}
    loaded = check(
        "TreeEnsembleRegressor", inputs_of(trees, 30), n_targets=2, aggregate_function=join, reference=join == "SUM",
        runtime=not base,  # it leaves the base out where no leaf of a row has a weight for a target
        **trees, **weights, **base,
    )  # fmt: skip
    assert "compiled as a whole" in loaded.explain()


@pytest.mark.parametrize("post", POST)
@pytest.mark.parametrize("classes", [[1, 5, 7], [0, 1]])
def test_classifiers_of_trees(classes: list[int], post: str) -> None:
    trees = trees_of(5, LEQ)
    weights = leaves_of(trees, "class", len(classes), 1)
    check(
        "TreeEnsembleClassifier", inputs_of(trees, 30), outputs=2, classlabels_int64s=classes, post_transform=post,
        reference=post != "SOFTMAX_ZERO" or len(classes) == 2, runtime=len(classes) > 2, **trees, **weights,
    )  # fmt: skip


def test_classifiers_of_trees_name_strings() -> None:
    trees = trees_of(6, LEQ)
    weights = leaves_of(trees, "class", 3, 2)
    check("TreeEnsembleClassifier", inputs_of(trees, 9), outputs=2, classlabels_strings=WORDS, **trees, **weights)


def test_a_tree_that_leads_back_to_itself_is_refused() -> None:
    trees = trees_of(0, LEQ)
    trees["nodes_truenodeids"][0] = 0
    model = model_of(
        "TreeEnsembleRegressor", [draw(3, 5)], 1, 3, n_targets=2, **trees, **leaves_of(trees, "target", 2, 0)
    )
    with pytest.raises(FileFormatError, match=r"roots|leads back"):
        nnc.onnx.load(model.SerializeToString())({"x0": draw(3, 5)})


@pytest.mark.parametrize("post", POST)
@pytest.mark.parametrize("count", [2, 3])
def test_linear_classifiers(count: int, post: str) -> None:
    weights = {"coefficients": draw(count * 4).tolist(), "intercepts": draw(count, seed=1).tolist()}
    for labels in ({"classlabels_ints": list(range(5, 5 + count))}, {"classlabels_strings": WORDS[:count]}):
        check("LinearClassifier", draw(6, 4, seed=2), outputs=2, post_transform=post, **weights, **labels)


def test_a_linear_classifier_of_one_score() -> None:
    weights = {"coefficients": draw(4).tolist(), "intercepts": [0.1]}
    for post in ("NONE", "LOGISTIC"):  # onnxruntime gives 1 - score to the other class without a function
        check(
            "LinearClassifier", draw(6, 4, seed=2), outputs=2, classlabels_ints=[0, 1], post_transform=post,
            runtime=post != "NONE", **weights,
        )  # fmt: skip


def test_linear_regressors() -> None:
    check("LinearRegressor", draw(6, 4), coefficients=draw(8).tolist(), intercepts=[0.5, -2.0], targets=2)
    check("LinearRegressor", draw(6, 4), coefficients=draw(4).tolist(), targets=1, reference=False)


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF", "POLY", "SIGMOID"])
def test_support_vector_regressors(kernel: str) -> None:
    settings = {"kernel_type": kernel, "kernel_params": [0.5, 0.25, 3.0], "rho": [0.3]}
    vectors = {"support_vectors": draw(20).tolist(), "coefficients": draw(5, seed=1).tolist(), "n_supports": 5}
    for one_class in (0, 1):
        check("SVMRegressor", draw(7, 4, seed=2), one_class=one_class, **vectors, **settings)


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF", "POLY", "SIGMOID"])
@pytest.mark.parametrize("has_probabilities", [False, True])
@pytest.mark.parametrize("counts", [[3, 2], [2, 3, 2]])
def test_support_vector_classifiers(counts: list[int], has_probabilities: bool, kernel: str) -> None:
    total, pairs = sum(counts), len(counts) * (len(counts) - 1) // 2
    more: dict[str, Any] = {"prob_a": [-1.5] * pairs, "prob_b": [0.25] * pairs} if has_probabilities else {}
    check(
        "SVMClassifier", draw(8, 4, seed=2), outputs=2, kernel_type=kernel, kernel_params=[0.5, 0.25, 3.0],
        vectors_per_class=counts, support_vectors=draw(total * 4).tolist(), rho=draw(pairs, seed=4).tolist(),
        coefficients=draw((len(counts) - 1) * total, seed=3).tolist(), classlabels_ints=[4, 6, 9][: len(counts)],
        reference=not (has_probabilities and pairs > 1),  # which sums products of rates that it should keep apart
        bound=1e-3 if has_probabilities else 1e-5, **more,
    )  # fmt: skip


def test_encoders() -> None:
    words = np.array([["bee", "ant"], ["dog", "cat"]], object)
    check("LabelEncoder", words, version=2, keys_strings=WORDS, values_int64s=[5, 6, 7], default_int64=-3)
    check(
        "CategoryMapper", words, version=1, reference=False, cats_strings=WORDS, cats_int64s=[5, 6, 7], default_int64=0
    )
    check(
        "CategoryMapper", np.array([7, 1, 5]), version=1, reference=False, cats_strings=WORDS, cats_int64s=[5, 6, 7],
        default_string="none",
    )  # fmt: skip
    check("OneHotEncoder", np.array([3, 9, 4]), version=1, cats_int64s=[3, 4], zeros=1)
    check("OneHotEncoder", words, version=1, cats_strings=WORDS, zeros=1)


def test_an_element_of_no_category_is_refused_where_the_model_says_so() -> None:
    model = model_of("OneHotEncoder", [np.array([3, 9])], 1, 1, cats_int64s=[3, 4], zeros=0)
    with pytest.raises(FileFormatError, match="none of the categories"):
        nnc.onnx.load(model.SerializeToString())({"x0": np.array([3, 9])})


def test_scalers_and_the_like() -> None:
    x = draw(5, 3)
    check("Scaler", x, version=1, offset=[0.5, 1.0, 2.0], scale=[2.0, 3.0, 4.0])
    check("Binarizer", x, version=1, threshold=0.25)
    for norm in ("MAX", "L1", "L2"):
        check("Normalizer", np.abs(x), version=1, norm=norm)
    holes = np.where(x > 0, np.float32(np.nan), x)
    check("Imputer", holes, version=1, imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=float("nan"))
    check("Imputer", np.array([[1, 2], [2, 1]]), version=1, imputed_value_int64s=[7], replaced_value_int64=2)
    check("FeatureVectorizer", x, draw(5, 2, seed=1), version=1, inputdimensions=[3, 2])
    check("ArrayFeatureExtractor", x, np.array([2, 0]), version=1)


def test_linear_models_have_gradients() -> None:
    weights = {"coefficients": draw(4).tolist(), "intercepts": [0.5], "targets": 1}
    loaded = nnc.onnx.load(model_of("LinearRegressor", [draw(6, 4)], 1, 1, **weights).SerializeToString())
    found = nnc.grad(lambda x: nnc.numpy.sum(loaded({"x0": x})[0]))(nnc.asarray(draw(6, 4)))
    np.testing.assert_allclose(found, np.tile(np.float32(weights["coefficients"]), (6, 1)), rtol=1e-6)
