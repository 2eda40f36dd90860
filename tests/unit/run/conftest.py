"""The fixtures of lowering's tests, for tests of programs that run."""

from tests.unit.lower.conftest import agree, compile_graph, written

__all__ = ["agree", "compile_graph", "written"]
