"""Functions of SciPy and scikit-learn on nnc's arrays under array API dispatch: those that work, and those that assign in place.

SciPy reads SCIPY_ARRAY_API when it is imported, so the table runs in a process of its own: `python -m tests.docs.clients.dispatch`
prints the state of each row as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

WORKS, NUMPY, ASSIGNS = "gives nnc's arrays", "gives NumPy's arrays", "assigns in place"
Row = Callable[..., Any]


def arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two matrices of floats, the second between 0 and 1, and labels 0 and 1."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 5))
    return x, rng.uniform(0.1, 0.9, size=(40, 5)), (x[:, 0] > 0).astype(np.int64)


def table() -> dict[str, tuple[str, Row]]:
    """The expected state of each function, and a call of it with the arrays."""
    from scipy import fft, integrate, linalg, ndimage, signal, special, stats  # noqa: PLC0415  (after the variable is set)
    from scipy.cluster import hierarchy  # noqa: PLC0415
    from scipy.spatial import distance  # noqa: PLC0415
    from sklearn import covariance, decomposition, linear_model, metrics, model_selection  # noqa: PLC0415
    from sklearn import discriminant_analysis as analysis  # noqa: PLC0415
    from sklearn import preprocessing as prep  # noqa: PLC0415

    def fitted(model: Any, *names: str) -> Row:
        return lambda x, p, y: [getattr(model.fit(x), name) for name in names]

    full = decomposition.PCA(2, svd_solver="full")
    works: dict[str, Row] = {
        "scipy.special.gammaln": lambda x, p, y: special.gammaln(p),
        "scipy.special.betainc": lambda x, p, y: special.betainc(p, p, p),
        "scipy.special.softmax": lambda x, p, y: special.softmax(x, axis=1),
        "scipy.fft.fft": lambda x, p, y: fft.fft(x),
        "scipy.fft.dct": lambda x, p, y: fft.dct(x),
        "scipy.stats.ttest_ind": lambda x, p, y: stats.ttest_ind(x, p),
        "scipy.stats.skew": lambda x, p, y: stats.skew(x),
        "scipy.stats.describe": lambda x, p, y: stats.describe(x),
        "scipy.stats.spearmanr": lambda x, p, y: stats.spearmanr(x[:, 0], x[:, 1]),
        "scipy.signal.fftconvolve": lambda x, p, y: signal.fftconvolve(x[:, 0], p[:, 0]),
        "scipy.ndimage.gaussian_filter": lambda x, p, y: ndimage.gaussian_filter(x, 1.0),
        "scipy.cluster.hierarchy.linkage": lambda x, p, y: hierarchy.linkage(x),
        "sklearn.decomposition.PCA": lambda x, p, y: full.fit(x).transform(p),
        "sklearn.linear_model.LinearRegression": lambda x, p, y: linear_model.LinearRegression().fit(x, p).predict(p),
        "sklearn.linear_model.RidgeCV": lambda x, p, y: linear_model.RidgeCV().fit(x, p[:, 0]).predict(p),
        "sklearn.metrics.accuracy_score": lambda x, p, y: metrics.accuracy_score(y, 1 - y),
        "sklearn.metrics.roc_auc_score": lambda x, p, y: metrics.roc_auc_score(y, p[:, 0]),
        "sklearn.metrics.confusion_matrix": lambda x, p, y: metrics.confusion_matrix(y, 1 - y),
        "sklearn.metrics.mean_squared_error": lambda x, p, y: metrics.mean_squared_error(x, p),
        "sklearn.metrics.pairwise.rbf_kernel": lambda x, p, y: metrics.pairwise.rbf_kernel(x, p),
        "sklearn.model_selection.train_test_split": lambda x, p, y: model_selection.train_test_split(
            x, y, random_state=0
        ),
    }
    in_numpy: dict[str, Row] = {
        "scipy.signal.welch": lambda x, p, y: signal.welch(x[:, 0], nperseg=16),
        "scipy.linalg.svd": lambda x, p, y: linalg.svd(x)[1],
        "scipy.linalg.expm": lambda x, p, y: linalg.expm(x[:5]),
        "scipy.spatial.distance.cdist": lambda x, p, y: distance.cdist(x, p),
        "sklearn.covariance.EmpiricalCovariance": fitted(covariance.EmpiricalCovariance(), "covariance_"),
        "sklearn.preprocessing.RobustScaler": fitted(prep.RobustScaler(), "center_", "scale_"),
    }
    assigns: dict[str, Row] = {
        "scipy.special.logsumexp": lambda x, p, y: special.logsumexp(x),
        "scipy.stats.pearsonr": lambda x, p, y: stats.pearsonr(x[:, 0], x[:, 1]),
        "scipy.stats.zscore": lambda x, p, y: stats.zscore(x),
        "scipy.stats.f_oneway": lambda x, p, y: stats.f_oneway(x[:, 0], x[:, 1]),
        "scipy.stats.mannwhitneyu": lambda x, p, y: stats.mannwhitneyu(x, p),
        "scipy.stats.iqr": lambda x, p, y: stats.iqr(x),
        "scipy.signal.hilbert": lambda x, p, y: signal.hilbert(x[:, 0]),
        "scipy.signal.resample": lambda x, p, y: signal.resample(x[:, 0], 20),
        "scipy.linalg.block_diag": lambda x, p, y: linalg.block_diag(x, p),
        "scipy.integrate.cumulative_simpson": lambda x, p, y: integrate.cumulative_simpson(x),
        "sklearn.linear_model.Ridge": lambda x, p, y: linear_model.Ridge(solver="svd").fit(x, p).predict(x),
        "sklearn.linear_model.LogisticRegression": lambda x, p, y: linear_model.LogisticRegression().fit(x, y).coef_,
        "sklearn.discriminant_analysis.LinearDiscriminantAnalysis": lambda x, p, y: (
            analysis.LinearDiscriminantAnalysis().fit(x, y).coef_
        ),
        "sklearn.preprocessing.StandardScaler": lambda x, p, y: prep.StandardScaler().fit(x).transform(x),
        "sklearn.preprocessing.MinMaxScaler": lambda x, p, y: prep.MinMaxScaler().fit(x).transform(x),
        "sklearn.metrics.f1_score": lambda x, p, y: metrics.f1_score(y, 1 - y),
        "sklearn.metrics.r2_score": lambda x, p, y: metrics.r2_score(x, p),
        "sklearn.metrics.log_loss": lambda x, p, y: metrics.log_loss(y, p[:, 0]),
        "sklearn.metrics.pairwise.cosine_similarity": lambda x, p, y: metrics.pairwise.cosine_similarity(x, p),
    }
    states = ((WORKS, works), (NUMPY, in_numpy), (ASSIGNS, assigns))
    return {name: (state, row) for state, rows in states for name, row in rows.items()}


def leaves(result: Any) -> Iterator[Any]:
    """The arrays and numbers of a result, which may be a tuple, a list, or an object that holds some."""
    if isinstance(result, (tuple, list)):
        for part in result:
            yield from leaves(part)
    elif hasattr(result, "statistic"):
        yield from (result.statistic, result.pvalue)
    else:
        yield result


def state_of(row: Row) -> str:
    """One row on nnc's arrays beside the same call on NumPy's."""
    import nnc.numpy as nnp  # noqa: PLC0415
    from nnc import errors  # noqa: PLC0415

    given = arrays()
    want = list(leaves(row(*given)))
    try:
        got = list(leaves(row(*(nnp.asarray(x) for x in given))))
    except errors.ArgumentTypeError as error:
        return ASSIGNS if "nnc arrays are immutable" in str(error) else f"{error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if not all(np.allclose(x, w, rtol=1e-9, atol=1e-12) for x, w in zip(got, want, strict=True)):
        return "gives other numbers"
    return NUMPY if any(isinstance(x, np.ndarray) for x in got) else WORKS


if __name__ == "__main__":
    os.environ["SCIPY_ARRAY_API"] = "1"
    import sklearn

    sklearn.set_config(array_api_dispatch=True)
    json.dump({name: state_of(row) for name, (_, row) in table().items()}, sys.stdout)
