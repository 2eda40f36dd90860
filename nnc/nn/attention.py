"""Attention."""

from __future__ import annotations

import math
from typing import Any

import nnc.numpy as nnp
from nnc import dtypes
from nnc.commands.promote import dtype_of, promote
from nnc.commands.rules import Value
from nnc.errors import ShapeError, user_error
from nnc.graph import spec_of
from nnc.nn.activations import softmax
from nnc.spelling import spelled


@spelled
def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
) -> Value:
    """Returns the mean of the values, weighted by how well their keys match each query (Vaswani et al., 2017).

    out[t] = sum over s of softmax over s of (scale · query[t] · key[s] + bias[t, s]) · value[s], for each head

    Args:     query: (..., T, heads, features). key, value: (..., S, heads, features); fewer heads, of which the queries' is a
              multiple, are shared by groups of queries' heads. bias, mask: broadcast to (..., heads, T, S); where the mask is
              False nothing is attended to. scale: 1 / sqrt(features) by default. is_causal: s > t is masked.
    Returns:  (..., T, heads, features); 0 where everything is masked.
    Raises:   ShapeError: the operands do not fit together.
    Example:
        >>> q = np.ones((2, 5, 4, 8), np.float32)
        >>> dot_product_attention(q, q, q, is_causal=True).shape
        (2, 5, 4, 8)
    """
    q, k, v = promote(query, key, value, where="dot_product_attention", to=dtypes.to_float)
    operands = {"query": spec_of(q), "key": spec_of(k), "value": spec_of(v)}
    (of_q, of_k, of_v), dtype = (spec.shape for spec in operands.values()), dtype_of(q)
    fits = len(of_q) == len(of_k) >= 3 and of_k[:-1] == of_v[:-1] and of_q[-1] == of_k[-1] and of_q[:-3] == of_k[:-3]
    if not fits or of_q[-2] % max(1, of_k[-2]):
        raise user_error(
            ShapeError, "dot_product_attention", "query, key and value do not fit together.", operands=operands,
            fix="pass query (..., T, heads, features), key and value (..., S, heads or a divisor of it, features).",
        )  # fmt: skip
    heads, shared = of_q[-2], of_q[-2] // max(1, of_k[-2])
    if shared > 1:
        k, v = (nnp.repeat(x, shared, axis=-2) for x in (k, v))
    scale = 1 / math.sqrt(max(1, of_q[-1])) if scale is None else scale
    wide = dtypes.accumulator(dtype)
    scores = nnp.einsum("...thf,...shf->...hts", nnp.astype(q, wide) * scale, nnp.astype(k, wide))
    scores = scores if bias is None else scores + bias
    allowed = None if mask is None else nnp.asarray(mask)
    if is_causal:
        lower = nnp.arange(of_q[-3])[:, None] >= nnp.arange(of_k[-3])[None, :]
        allowed = lower if allowed is None else allowed & lower
    weights = softmax(scores, axis=-1, where=allowed)
    out = nnp.einsum("...hts,...shf->...thf", weights, nnp.astype(v, wide))
    return nnp.reshape(out, (*of_q[:-2], heads, of_v[-1])).astype(dtype)
