"""The open command registry."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from nnc.errors import RegistryError
from nnc.graph import (
    COMMANDS,
    Attribute,
    Command,
    Kernel,
    add_kernel,
    attribute,
    command,
    expect_kernels,
    kernel,
    register,
)
from nnc.graph.rules import Rules

New = Callable[..., Command]


@pytest.fixture
def cycles(own_registries: None) -> Any:
    """A column that exists for one test."""
    return Attribute("test_cycles", "for tests")


def run(inputs: Any, outputs: Any, params: Any) -> None:
    """A kernel that does nothing."""


def test_a_registered_command_is_found_by_name_with_its_cells_filled(new_command: New) -> None:
    rule = lambda x: x
    new = new_command("test_new", Rules(infer=rule), arity=2, outputs=3)
    assert command("test_new") is new is COMMANDS["test_new"]
    assert (new.arity, new.outputs, attribute("infer")[new]) == (2, 3, rule)
    assert command(new) is new


def test_a_command_cannot_be_registered_twice(new_command: New) -> None:
    new_command("test_new", Rules())
    with pytest.raises(RegistryError, match="command 'test_new' exists already"):
        register("test_new", Rules())


def test_a_command_with_an_unknown_column_is_not_registered_at_all() -> None:
    with pytest.raises(RegistryError, match="no attribute 'test_missing'; there are .*infer"):
        register("test_half", Rules(), test_missing=1)
    assert "test_half" not in COMMANDS


def test_unknown_commands_and_empty_cells_are_named(new_command: New) -> None:
    with pytest.raises(RegistryError, match="no command 'test_unknown' is registered"):
        command("test_unknown")
    with pytest.raises(RegistryError, match="test_new: attribute 'infer' is not set"):
        attribute("infer")[new_command("test_new", Rules())]


def test_another_package_can_add_a_column_and_fill_it_for_existing_commands(cycles: Any, new_command: New) -> None:
    new = new_command("test_new", Rules(), test_cycles=4)
    cycles.set("add", 1)
    assert attribute("test_cycles") is cycles
    assert (cycles[new], cycles[command("add")], cycles.get(command("mul"), 7)) == (4, 1, 7)
    assert new in cycles and command("mul") not in cycles
    assert list(cycles) == [new, command("add")]
    with pytest.raises(RegistryError, match="attribute 'test_cycles' exists already"):
        Attribute("test_cycles")


def test_a_second_value_needs_a_higher_priority(cycles: Any, new_command: New) -> None:
    new = new_command("test_new", Rules(), test_cycles=4)
    with pytest.raises(RegistryError, match="is set already, with priority 10.(.|\n)*Fix: pass priority=11"):
        cycles.set(new, 5)
    cycles.set(new, 5, priority=11)
    assert cycles[new] == 5


def test_a_follower_of_a_column_meets_each_command_once(cycles: Any, new_command: New) -> None:
    """Commands with a cell first, others when they get one; a cell that is overruled is none that is new."""
    met: list[Command] = []
    cycles.set("add", 1)
    cycles.follow(met.append)
    new = new_command("test_new", Rules(), test_cycles=4)
    cycles.set(new, 5, priority=11)
    assert met == [command("add"), new]


def test_kernels_of_several_backends_stand_by_priority_and_one_backend_has_one(new_command: New) -> None:
    new = new_command("test_new", Rules())
    slow, fast = Kernel("slow", run, priority=0), Kernel("fast", run, priority=20)
    add_kernel(new, slow)
    add_kernel("test_new", fast)
    assert kernel[new] == (fast, slow)
    with pytest.raises(RegistryError, match="backend 'fast' has a kernel of priority 20 already"):
        add_kernel(new, Kernel("fast", run, priority=20))
    better = Kernel("slow", run, priority=30)
    add_kernel(new, better)
    assert kernel[new] == (better, fast)


def test_all_kernels_of_a_command_are_told_that_one_will_be_looked_for(new_command: New) -> None:
    told: list[str] = []
    for name in ("test_new", "test_other"):
        new_command(name, Rules())
        for backend in ("slow", "fast"):
            add_kernel(name, Kernel(backend, run, expect=lambda label=f"{name} {backend}": told.append(label)))
        add_kernel(name, Kernel("silent", run))
    expect_kernels([command("test_new"), command("add")])
    assert sorted(told) == ["test_new fast", "test_new slow"]


def test_commands_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(command("add"))) is command("add")
