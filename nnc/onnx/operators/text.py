"""Strings, which NumPy's arrays of objects hold."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from nnc.onnx.model import Node
from nnc.onnx.operators.patterns import Pattern
from nnc.onnx.operators.table import operator
from nnc.onnx.values import check_known, known


@operator("StringConcat")
def concat(node: Node, x: Any, y: Any) -> Any:
    return np.asarray(np.add(x, y), object)


@operator("StringNormalizer", since=10)
def normalize(node: Node, x: Any) -> Any:
    """Leaves out words and changes the case."""
    stops, is_sensitive = node.attributes.get("stopwords", []), node.attributes.get("is_case_sensitive", 0)
    stops = set(stops) if is_sensitive else {word.lower() for word in stops}
    changes: dict[str, Any] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}
    change = changes[node.attributes.get("case_change_action", "NONE")]
    kept = [word for word in map(str, x.ravel()) if (word if is_sensitive else word.lower()) not in stops] or [""]
    found = np.array([change(word) for word in kept], object)
    return found if x.ndim == 1 else found.reshape(1, -1)


@operator("StringSplit")
def split(node: Node, x: Any) -> Any:
    """The second result is the number of parts of each string; shorter lists are filled up with empty strings."""
    separator, most = node.attributes.get("delimiter") or None, node.attributes.get("maxsplit", -1)
    parts = [str(text).split(separator, most) if str(text) or separator is None else [""] for text in x.ravel()]
    counts = [0 if part == [""] else len(part) for part in parts]
    width = max(counts, default=0)
    found = np.array([(part + [""] * width)[:width] for part in parts], object).reshape(*x.shape, width)
    return found, np.array(counts, np.int64).reshape(x.shape)


@operator("RegexFullMatch")
def full_match(node: Node, x: Any) -> Any:
    pattern = Pattern(node.attributes["pattern"])
    return np.array([pattern.matches(str(text)) for text in x.ravel()], bool).reshape(x.shape)


@operator("TfIdfVectorizer")
def tf_idf(node: Node, x: Any) -> Any:
    """Counts n-grams, or weighs them."""
    get: Any = node.attributes.get
    pool: list[Any] = get("pool_strings") or get("pool_int64s")
    begins, places = [*get("ngram_counts"), len(pool)], get("ngram_indexes")
    grams: dict[tuple[Any, ...], int] = {}
    for size, (begin, end) in enumerate(pairwise(begins), 1):
        for first in range(begin, end, size):
            grams[tuple(pool[first : first + size])] = len(grams)
    values = known(x, "the words of TfIdfVectorizer")
    rows = values.reshape(1, -1) if values.ndim < 2 else values
    check_known(4 * len(rows) * (max(places) + 1), "the result of TfIdfVectorizer")
    counts = np.zeros((rows.shape[0], max(places) + 1), np.float32)
    for row, words in enumerate(rows.tolist()):
        for size in range(get("min_gram_length"), min(get("max_gram_length"), len(words)) + 1):
            skips = min(get("max_skip_count"), len(words)) if size > 1 else 0
            for skip in range(skips + 1):
                reach = (size - 1) * (skip + 1)
                for first in range(len(words) - reach):
                    gram = tuple(words[first : first + reach + 1 : skip + 1])
                    if gram in grams:
                        counts[row, places[grams[gram]]] += 1
    weights = np.ones(counts.shape[1], np.float32)
    for place, weight in zip(places, get("weights") or [1.0] * len(places), strict=False):
        weights[place] = weight
    found = {"TF": counts, "IDF": (counts > 0) * weights, "TFIDF": counts * weights}[get("mode")].astype(np.float32)
    return found[0] if values.ndim < 2 else found
