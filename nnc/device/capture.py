"""Notes the order of captured launches.

While launches are captured, a stream holds the launches that its next one must follow. An event takes this set over, and a stream
that waits for the event adds it to its own. So a graph has the same order as the streams would have given, and nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from nnc.errors import DeviceError, user_error

K = TypeVar("K")


@dataclass(slots=True)
class Node(Generic[K]):
    """A captured launch.

    Attributes:
        addresses: the addresses of the kernel's operands, which may be replaced between launches.
        after: the numbers of the nodes that it directly follows.
    """

    kernel: K
    addresses: list[int]
    after: frozenset[int]


class Tracker(Generic[K]):
    """Notes the launches of a capture, which begins in the stream `origin`."""

    def __init__(self, origin: int) -> None:
        self._origin, self._nodes = origin, list[Node[K]]()
        self._last: dict[int, frozenset[int]] = {origin: frozenset()}  # by stream: the nodes that its next one follows
        self._events: dict[int, frozenset[int]] = {}

    def launch(self, stream: int, kernel: K, addresses: Sequence[int]) -> None:
        """Notes a launch."""
        self._nodes.append(Node(kernel, list(addresses), self._after(stream)))
        self._last[stream] = frozenset([len(self._nodes) - 1])

    def record(self, event: int, stream: int) -> None:
        """Notes that an event is recorded in a stream."""
        self._events[event] = self._after(stream)

    def wait(self, stream: int, event: int) -> None:
        """Notes that a stream waits for an event, by which it joins the capture."""
        if event not in self._events:
            raise _unjoined(stream, "waits for an event from outside of the capture")
        self._last[stream] = self._last.get(stream, frozenset()) | self._events[event]

    def finish(self) -> list[Node[K]]:
        """Returns the captured launches.

        Raises:
            DeviceError: a stream of the capture does not join the first one.
        """
        reached = set[int]()
        waiting = list(self._last[self._origin])
        while waiting:
            number = waiting.pop()
            if number not in reached:
                reached.add(number)
                waiting.extend(self._nodes[number].after)
        for stream, last in self._last.items():
            if not last <= reached:
                raise _unjoined(stream, "has work that the first stream of the capture does not wait for")
        return self._nodes

    def _after(self, stream: int) -> frozenset[int]:
        if stream not in self._last:
            raise _unjoined(stream, "is not a part of the capture")
        return self._last[stream]


def _unjoined(stream: int, problem: str) -> DeviceError:
    return user_error(
        DeviceError, "capture", f"stream {stream} {problem}.", fix="let the streams wait for each other's events."
    )
