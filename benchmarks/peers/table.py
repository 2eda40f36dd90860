"""The tables of a run: step times, first calls, memory, imports."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.peers.row import Machine
from benchmarks.peers.run import Figure, Outcome
from benchmarks.tables import Cell, print_table

FRAMEWORKS = ("nnc", "jax", "torch", "torch.compile", "numpy")
NONE = "-"
SECTIONS = {
    "Step times": ("networks", "programs"),
    "Fourier transforms and complex numbers": ("complexes",),
    "Factorisations of small matrices": ("matrices",),
    "Calls": ("calls",),
    "Products and convolutions": ("sweeps",),
}


def step_rows(outcomes: Sequence[Outcome], machine: Machine) -> list[list[Cell]]:
    """For each row its times, the best peer's times by nnc's (medians, least times), the floor's part of nnc's time."""
    rows: list[list[Cell]] = []
    for outcome in outcomes:
        floor, bound = outcome.row.work.floor(machine)
        nnc, peer = outcome.best("nnc"), outcome.best_peer()
        rows.append(
            [
                outcome.row.title,
                *(_time(outcome.best(name)) for name in FRAMEWORKS),
                f"{peer.step / nnc.step:.2f}" if nnc and peer else NONE,
                f"{outcome.least_ratio:.2f}" if outcome.least_ratio is not None else NONE,
                peer.way if peer else NONE,
                f"{format_seconds(floor)} {bound}" if floor else NONE,
                f"{100 * floor / nnc.step:.0f} %" if floor and nnc else NONE,
            ]
        )
    return rows


def first_rows(outcomes: Sequence[Outcome]) -> list[list[Cell]]:
    """Seconds of first calls: trace, compile, run."""
    rows: list[list[Cell]] = []
    for outcome in outcomes:
        firsts = {name: _of_two_threads(outcome, name) for name in ("nnc", "jax", "torch", "torch.compile")}
        nnc, jax = firsts["nnc"], firsts["jax"]
        rows.append(
            [
                outcome.row.title,
                *(f"{found.first:.3f}" if found else NONE for found in firsts.values()),
                f"{outcome.warm:.3f}" if outcome.warm is not None else NONE,
                f"{nnc.first / jax.first:.2f}" if nnc and jax else NONE,
                f"{outcome.warm / jax.first:.2f}" if outcome.warm is not None and jax else NONE,
            ]
        )
    return rows


def memory_rows(outcomes: Sequence[Outcome]) -> list[list[Cell]]:
    """MiB that are resident at most while steps run, beyond the memory of the imports; in brackets all of the process."""
    rows: list[list[Cell]] = []
    for outcome in outcomes:
        found = {name: _of_two_threads(outcome, name) for name in FRAMEWORKS[:-1]}
        own = {name: figure.memory["peak"] - figure.memory["imports"] for name, figure in found.items() if figure}
        peers = [nbytes for name, nbytes in own.items() if name != "nnc"]
        cells = [
            f"{own[name] / 2**20:.0f} ({figure.memory['peak'] / 2**20:.0f})" if figure else NONE
            for name, figure in found.items()
        ]
        ratio = f"{own['nnc'] / min(peers):.2f}" if "nnc" in own and peers else NONE
        rows.append([outcome.row.title, *cells, ratio])
    return rows


def print_outcomes(outcomes: Sequence[Outcome], machine: Machine, imports: dict[str, float]) -> None:
    """Prints all tables, and the ways that could not run or disagreed."""
    print(
        f"\nA product of 1024² float32 runs at {machine.flops / 1e9:.0f} Gflop/s, a copy of 256 MiB at "
        f"{machine.bandwidth / 1e9:.1f} GB/s read and written, a dependent multiplication takes {machine.latency * 1e9:.2f} ns. "
        "Floors are worked out from these; what stays in a cache can be faster than the copy. By least: the least times "
        "instead of the medians, as on an idle machine."
    )
    header = ("row", *FRAMEWORKS, "best peer / nnc", "by least", "best peer", "floor", "floor / nnc")
    for title, families in SECTIONS.items():
        part = [outcome for outcome in outcomes if outcome.row.case.partition(".")[0] in families]
        if part:
            print_table(title, header, step_rows(part, machine))
            print_ratios(part)
    alone = [outcome for outcome in outcomes if outcome.is_alone]
    if alone:
        header = ("row", *FRAMEWORKS[:-1], "nnc, warm cache", "nnc / jax", "warm / jax")
        print_table("First call, seconds", header, first_rows(alone))
    training = [outcome for outcome in alone if outcome.row.trains]
    if training:
        header = ("row", *FRAMEWORKS[:-1], "nnc / best peer")
        print_table("Resident memory of training steps, MiB at most", header, memory_rows(training))
    if imports:
        print_table("Imports", ("package", "seconds"), [[name, round(value, 3)] for name, value in imports.items()])
    for outcome in outcomes:
        if outcome.row.work.floor(machine)[1] == "bytes" and (nnc := outcome.best("nnc")) and outcome.row.work.nbytes:
            rate = outcome.row.work.nbytes / nnc.step
            part = 100 * rate / machine.bandwidth
            print(
                f"\n{outcome.row.title}: nnc moves {rate / 1e9:.1f} GB/s of what must move, {part:.0f} % of the copy."
            )
    for outcome in outcomes:
        for way, problem in outcome.problems.items():
            print(f"\nAbsent: {outcome.row.name}, {way}: {problem}")
        for text in outcome.disagreements:
            print(f"\nDISAGREE: {outcome.row.name}: {text}")


def print_ratios(outcomes: Sequence[Outcome]) -> None:
    """Prints the mean of the ratios, and how much more than NumPy an eager command takes at most."""
    pairs = [(outcome.row, outcome.best("nnc"), outcome.best_peer()) for outcome in outcomes]
    logs = [math.log(peer.step / nnc.step) for _, nnc, peer in pairs if nnc and peer]
    if logs:
        mean, met = math.exp(sum(logs) / len(logs)), sum(value >= 0 for value in logs)
        print(f"\nGeometric mean of best peer / nnc: {mean:.2f}; at least 1 in {met} of {len(logs)} rows.")
    eager = [(nnc.step - peer.step, row.title) for row, nnc, peer in pairs if row.group == "eager" and nnc and peer]
    if eager:
        more, title = max(eager)
        print(f"\nAn eager command of nnc takes at most {format_seconds(more)} more than the best peer ({title}).")


def describe(outcome: Outcome) -> str:
    """A row's figures in a line, while the others still run."""
    figures = [f"{f.way} {format_seconds(f.step)} (first {format_seconds(f.first)})" for f in outcome.figures]
    problems = [f"{way}: {problem}" for way, problem in outcome.problems.items()]
    return f"{outcome.row.name}: {'; '.join([*figures, *problems, *outcome.disagreements])}"


def format_seconds(seconds: float) -> str:
    """Three digits with the unit that fits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def _time(figure: Figure | None) -> str:
    if figure is None:
        return NONE
    return format_seconds(figure.step) + ("" if figure.scaled == 1 else f" (1/{figure.scaled} run)")


def _of_two_threads(outcome: Outcome, framework: str) -> Figure | None:
    return next((figure for figure in outcome.figures if figure.way == framework), None)
