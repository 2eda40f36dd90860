"""Methods of arrays that `nnc.numpy` adds when it is imported (`array_method`), as type checkers see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnc.numpy import creation, manipulation, methods, moments, reductions, repetition, searching


class NamedMethods:
    """Declares each method as the function that it is; nothing of it is there at run time."""

    __slots__ = ()

    if TYPE_CHECKING:
        __array_namespace__ = methods.__array_namespace__
        all = reductions.all
        any = reductions.any
        argmax = reductions.argmax
        argmin = reductions.argmin
        argpartition = searching.argpartition
        argsort = searching.argsort
        astype = creation.astype
        choose = searching.choose
        clip = methods.clip
        compress = methods.compress
        conj = methods.conj
        conjugate = methods.conjugate
        copy = creation.copy
        cumprod = reductions.cumprod
        cumsum = reductions.cumsum
        diagonal = manipulation.diagonal
        dot = methods.dot
        flatten = methods.flatten
        max = reductions.max
        mean = moments.mean
        min = reductions.min
        nonzero = searching.nonzero
        partition = searching.partition
        prod = reductions.prod
        ptp = reductions.ptp
        ravel = manipulation.ravel
        repeat = repetition.repeat
        reshape = methods.reshape
        round = methods.round
        searchsorted = searching.searchsorted
        sort = searching.sort
        squeeze = manipulation.squeeze
        std = moments.std  # type: ignore[has-type]  # the two modules know each other
        sum = reductions.sum
        swapaxes = manipulation.swapaxes
        take = searching.take
        tobytes = methods.tobytes
        trace = manipulation.trace
        transpose = methods.transpose
        var = moments.var  # type: ignore[has-type]
