"""The cheapest way to give each of many things one of two labels, where some pairs cost something if they differ: a minimum cut.

Dinic's algorithm ("Algorithm for solution of a problem of maximum flow in networks with power estimation", 1970). On the long thin
graphs of networks it takes few phases, each linear in the number of arcs.
"""

from __future__ import annotations

from collections import deque

INFINITE = 1 << 60


class MinCut:
    """Collects costs; `second` then returns the items with the second label. Things are numbered from 0."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._first, self._second = count, count + 1  # the terminals
        self._arcs: list[list[int]] = [[] for _ in range(count + 2)]  # numbers of arcs that leave; arc i ^ 1 runs back
        self._heads: list[int] = []
        self._room: list[int] = []

    def thing(self) -> int:
        """One more thing, whose label is free."""
        self._arcs.append([])
        return len(self._arcs) - 1

    def cost_of_first(self, thing: int, cost: int) -> None:
        """Adds a cost that is due if `thing` gets the first label."""
        self._arc(thing, self._second, cost)

    def cost_of_second(self, thing: int, cost: int) -> None:
        """Adds a cost that is due if `thing` gets the second label."""
        self._arc(self._first, thing, cost)

    def cost_if(self, first: int, second: int, cost: int) -> None:
        """Adds a cost that is due if `first` gets the first label and `second` the second."""
        self._arc(first, second, cost)

    def _arc(self, tail: int, head: int, room: int) -> None:
        if room > 0:
            self._arcs[tail].append(len(self._heads))
            self._arcs[head].append(len(self._heads) + 1)
            self._heads += head, tail
            self._room += room, 0

    def second(self) -> list[bool]:
        """Whether each thing gets the second label, in a labelling of least cost: of several, the one where the fewest do."""
        while True:
            levels = self._levels(self._first, forwards=True)
            if levels[self._second] < 0:
                break
            self._block(levels)
        behind = self._levels(self._second, forwards=False)  # things that can still reach the second terminal
        return [behind[thing] >= 0 for thing in range(self._count)]

    def _levels(self, start: int, *, forwards: bool) -> list[int]:
        """Returns the distance of everything from `start`, along arcs with room, or against them; -1 where there is no way."""
        levels = [-1] * len(self._arcs)
        levels[start] = 0
        queue = deque([start])
        while queue:
            tail = queue.popleft()
            for arc in self._arcs[tail]:
                head = self._heads[arc]
                if levels[head] < 0 and self._room[arc if forwards else arc ^ 1]:
                    levels[head] = levels[tail] + 1
                    queue.append(head)
        return levels

    def _block(self, levels: list[int]) -> None:
        """Fills all shortest ways from the first terminal to the second."""
        following = [0] * len(self._arcs)
        way: list[int] = []
        at = self._first
        while True:
            if at == self._second:
                least = min(self._room[arc] for arc in way)
                for arc in way:
                    self._room[arc] -= least
                    self._room[arc ^ 1] += least
                full = next(i for i, arc in enumerate(way) if not self._room[arc])
                at = self._heads[way[full] ^ 1]
                del way[full:]
                continue
            arcs = self._arcs[at]
            while following[at] < len(arcs):
                arc = arcs[following[at]]
                if self._room[arc] and levels[self._heads[arc]] == levels[at] + 1:
                    break
                following[at] += 1
            if following[at] < len(arcs):
                way.append(arcs[following[at]])
                at = self._heads[way[-1]]
            elif way:
                at = self._heads[way.pop() ^ 1]
                following[at] += 1
            else:
                return
