"""Aligns the steps of a program with those of the same program at another size, for kernels that print sizes as numbers."""

from __future__ import annotations

from dataclasses import replace

from nnc.lower.plan.stages import Branches, Iteration, Loop, Step, Steps


def aligned(steps: Steps, others: Steps) -> Steps | None:
    """Returns steps, each with the step of `others` that it is like; None where these are other steps."""
    if len(steps) != len(others):
        return None
    found = [_aligned_step(step, other) for step, other in zip(steps, others, strict=True)]
    known = [step for step in found if step is not None]
    return tuple(known) if len(known) == len(found) else None


def _aligned_step(step: Step, other: Step) -> Step | None:
    same = (
        step.command == other.command
        and len(step.inputs) == len(other.inputs)
        and len(step.outputs) == len(other.outputs)
        and len(step.graphs) == len(other.graphs)
        and type(step.region) is type(other.region)
    )
    if not same:
        return None
    region = step.region
    if isinstance(region, Loop) and isinstance(other.region, Loop):
        region = _aligned_loop(region, other.region)
    elif isinstance(region, Branches) and isinstance(other.region, Branches):
        region = _aligned_branches(region, other.region)
    return None if region is None and step.region is not None else replace(step, region=region, like=other)


def _aligned_loop(loop: Loop, other: Loop) -> Loop | None:
    if len(loop.copies) != len(other.copies):
        return None
    copies: list[Iteration] = []
    for mine, its in zip(loop.copies, other.copies, strict=True):
        parts = [(mine.head, its.head), (mine.leave, its.leave), (mine.tail, its.tail), (mine.turn, its.turn)]
        found = [steps for steps in (aligned(*pair) for pair in parts) if steps is not None]
        if len(found) < len(parts):
            return None
        copies.append(Iteration(found[0], mine.test, *found[1:]))
    return replace(loop, copies=tuple(copies))


def _aligned_branches(branches: Branches, other: Branches) -> Branches | None:
    if len(branches.branches) != len(other.branches):
        return None
    pairs = zip(branches.branches, other.branches, strict=True)
    found = [steps for steps in (aligned(*pair) for pair in pairs) if steps is not None]
    return replace(branches, branches=tuple(found)) if len(found) == len(branches.branches) else None
