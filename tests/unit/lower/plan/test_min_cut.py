from __future__ import annotations

import itertools
import random

from nnc.lower.plan.min_cut import INFINITE, MinCut


def cost(first: list[int], second: list[int], pairs: dict[tuple[int, int], int], labels: tuple[bool, ...]) -> int:
    """Returns the cost of a labelling."""
    own = sum(second[i] if label else first[i] for i, label in enumerate(labels))
    return own + sum(price for (a, b), price in pairs.items() if not labels[a] and labels[b])


def test_no_labelling_is_cheaper_than_the_cut() -> None:
    rng = random.Random(0)
    for _ in range(150):
        n = rng.randint(1, 7)
        first, second = ([rng.randint(0, 9) for _ in range(n)] for _ in range(2))
        ordered = [pair for pair in itertools.permutations(range(n), 2) if rng.random() < 0.5]
        pairs = {pair: rng.randint(0, 9) for pair in ordered}
        cut = MinCut(n)
        for i in range(n):
            cut.cost_of_first(i, first[i])
            cut.cost_of_second(i, second[i])
        for (a, b), price in pairs.items():
            cut.cost_if(a, b, price)
        found = tuple(cut.second())
        costs = {labels: cost(first, second, pairs, labels) for labels in itertools.product((False, True), repeat=n)}
        best = min(costs.values())
        assert costs[found] == best
        assert sum(found) == min(sum(labels) for labels, price in costs.items() if price == best)


def test_things_that_are_added_later_carry_a_price_that_is_paid_once() -> None:
    """Two want the second label for 4 each; either needs a copy for 6, which both can read."""
    for copies, expected in ((1, [True, True]), (2, [False, False])):
        cut = MinCut(2)
        made = [cut.thing() for _ in range(copies)]
        for copy in made:
            cut.cost_of_second(copy, 6)
        for i in range(2):
            cut.cost_of_first(i, 4)
            cut.cost_if(made[i % copies], i, INFINITE)
        assert cut.second() == expected


def test_a_long_chain_takes_no_recursion() -> None:
    n = 20_000
    cut = MinCut(n)
    cut.cost_of_first(0, 5)
    cut.cost_of_second(n - 1, 3)
    for i in range(n - 1):
        cut.cost_if(i, i + 1, 4)
        cut.cost_if(i + 1, i, 4)
    assert cut.second() == [True] * n
