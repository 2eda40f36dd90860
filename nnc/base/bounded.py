"""A mapping with a bound: of the calls that nnc remembers, it forgets the ones that were asked for least recently.

Facts about a call are remembered so that an equal call need not find them out again. All such memories follow one rule:

- The key holds everything that the answer depends on: specs, weakness, settings and structure, exactly. Two calls of one key cannot
  be told apart by their results.
- The answer is the one that the call itself gives. Calls with an effect, and draws, are never remembered.
- A mode that looks at commands switches all of them off (`nnc.base.context.observes_commands`), and so does "unspecialised",
  with which generated programs hold every answer against the call's own.
- Each has a bound, which is kept here.

| memory | key | answer |
| --- | --- | --- |
| specialised eager calls (`calls/specialise.py`) | specs, weakness, settings | the commands to run |
| specialised calls of a trace (`trace/core/staged_call.py`) | the same, and which operands have tangents | the nodes to record |
| calls of compiled functions (`signature.CallPattern`) | structure, specs, weakness, static leaves | the program |
| transforms of compiled functions (`compiled/compiled.py`) | transform, its settings | the compiled transform |
| routines (`trace/dynamic/routine.py`) | which operands are active | the recorded operations, and how they run |
| results (`trace/dynamic/memo.py`) | routine, operands by content or identity | the arrays |
| equal runs of a function (`nnc/compiled/dynamic_steps.py`) | function, structure, specs | its compiled form |
| derivatives (`nnc/compiled/dynamic.py`) | recorded commands, without values | the backward program |

Specialised calls of a trace live as long as the trace, routines as long as their call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from math import inf
from typing import Concatenate, Generic, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

G = TypeVar("G")
P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """A cache of the values that were asked for most recently.

    Threads may share one: an operation may miss an entry that another thread just added or removed. Where values have sizes,
    callers hold a lock, so that the total is right.

    Args:
        entries: the largest number of values.
        limit: the largest sum of sizes.
        size: returns the size of a value.

    Attributes:
        glance: returns the value of a key, or None, without counting as a use. It is the fastest way to look a value up.
        total: the present sum of sizes.

    Example:
        >>> from nnc.base.bounded import BoundedCache
        >>> squares = BoundedCache(2)
        >>> for x in (1, 2, 1, 3):
        ...     if squares.find(x) is None:
        ...         _ = squares.keep(x, x * x)
        >>> squares.find(2), squares.find(3), len(squares)
        (None, 9, 2)
    """

    __slots__ = ("_entries", "_limit", "_size", "_values", "glance", "total")

    def __init__(self, entries: int, limit: float = inf, size: Callable[[V], int] | None = None) -> None:
        self._entries, self._limit, self._size = entries, limit, size
        self._values: OrderedDict[K, V] = OrderedDict()
        self.glance: Callable[[K], V | None] = self._values.get
        self.total = 0

    def find(self, key: K) -> V | None:
        """Returns the value of a key, or None; it is then the last to go."""
        value = self._values.get(key)
        if value is None:
            return None
        try:
            self._values.move_to_end(key)
        except KeyError:  # another thread removed it meanwhile
            return None
        return value

    def keep(self, key: K, value: V) -> V:
        """Keeps and returns a value; values that were asked for longest ago make room."""
        values, size = self._values, self._size
        if size is not None:
            self.drop(key)
            self.total += size(value)
        values[key] = value
        while len(values) > self._entries or self.total > self._limit:
            try:
                _, oldest = values.popitem(last=False)
            except KeyError:  # other threads removed them
                break
            if size is not None:
                self.total -= size(oldest)
        return value

    def drop(self, key: K) -> None:
        """Forgets the value of a key, if there is one."""
        value = self._values.pop(key, None)
        if value is not None and self._size is not None:
            self.total -= self._size(value)

    def clear(self) -> None:
        """Forgets all."""
        self._values.clear()
        self.total = 0

    def __len__(self) -> int:
        return len(self._values)


def remembered(function: Callable[Concatenate[G, P], T]) -> Callable[Concatenate[G, P], T]:
    """Calls a function once for each graph and further arguments, which are given by position and have hashes.

    Facts live as long as their graph. The result must not hold the graph, which would then live for ever.
    """
    known: WeakKeyDictionary[G, dict[tuple[object, ...], T]] = WeakKeyDictionary()

    @wraps(function)
    def ask(graph: G, /, *args: P.args, **kwargs: P.kwargs) -> T:
        found = known.get(graph)
        if found is None:
            found = known[graph] = {}
        if args not in found:
            found[args] = function(graph, *args, **kwargs)
        return found[args]

    return ask
