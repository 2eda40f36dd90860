"""The cheapest way to give each of many things one of two labels, where some pairs cost something if they differ: a minimum cut.

Dinic's algorithm ("Algorithm for solution of a problem of maximum flow in networks with power estimation", 1970). On the long thin
graphs of networks it takes few phases, each linear in the number of arcs.
"""

from __future__ import annotations

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
        all_arcs, heads, room, turned = self._arcs, self._heads, self._room, not forwards
        levels = [-1] * len(all_arcs)
        levels[start] = 0
        queue = [start]
        for tail in queue:  # which grows meanwhile
            for arc in all_arcs[tail]:
                head = heads[arc]
                if levels[head] < 0 and room[arc ^ turned]:
                    levels[head] = levels[tail] + 1
                    queue.append(head)
        return levels

    def _block(self, levels: list[int]) -> None:
        """Fills all shortest ways from the first terminal to the second."""
        all_arcs, heads, room, last = self._arcs, self._heads, self._room, self._second
        following = [0] * len(all_arcs)
        way: list[int] = []
        at = self._first
        while True:
            if at == last:
                least = min([room[arc] for arc in way])
                for arc in way:
                    room[arc] -= least
                    room[arc ^ 1] += least
                full = next(i for i, arc in enumerate(way) if not room[arc])
                at = heads[way[full] ^ 1]
                del way[full:]
                continue
            arcs, i, after = all_arcs[at], following[at], levels[at] + 1
            while i < len(arcs) and not (room[arcs[i]] and levels[heads[arcs[i]]] == after):
                i += 1
            following[at] = i
            if i < len(arcs):
                way.append(arcs[i])
                at = heads[arcs[i]]
            elif way:
                at = heads[way.pop() ^ 1]
                following[at] += 1
            else:
                return
