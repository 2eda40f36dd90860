"""The simulated device: work runs in any order that events allow, and wrong uses are errors when they are queued."""

from __future__ import annotations

import multiprocessing
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnc.base.context import AT_REST, get_context, set_context
from nnc.device import Device
from nnc.device.protocol import Block
from nnc.errors import DeviceError, InternalError, OutOfMemoryError
from nnc.testing.devices.sim import SimDevice, SimStream, Use

DEVICE: Device = SimDevice()  # the type checker holds the class against the protocol
NOTHING: Callable[[], None] = lambda: None


def block_of(device: SimDevice, *values: int, stream: SimStream | None = None) -> Block:
    data = np.array(values, np.int64)
    stream = stream or device.stream
    block = device.pool.allocate(data.nbytes, stream)
    device.transfer.to_device(data, block, stream)
    return block


def values_of(block: Block, device: SimDevice, stream: SimStream | None = None) -> list[int]:
    target = np.zeros(block.nbytes // 8, np.int64)
    device.transfer.to_host(block, target, stream or device.stream).wait()
    return target.tolist()


def add(device: SimDevice, stream: SimStream, left: Block, right: Block, out: Block) -> None:
    def run() -> None:
        x, y, z = (block.owner.bytes.view(np.int64) for block in (left, right, out))
        np.add(x, y, out=z)

    uses = [
        Use.whole(left.owner, writes=False),
        Use.whole(right.owner, writes=False),
        Use.whole(out.owner, writes=True),
    ]
    stream.launch("add", run, uses)


def test_elements_come_back_as_they_went_and_nothing_runs_before_somebody_waits() -> None:
    device, ran = SimDevice(), []
    block = block_of(device, 1, 2, 3)
    device.stream.launch("note", lambda: ran.append(1), [])
    event = device.stream.record()
    assert not ran
    event.wait()
    assert ran and event.is_done() and values_of(block, device) == [1, 2, 3]


def test_time_passes_with_each_question_whether_an_event_is_reached() -> None:
    device = SimDevice()
    event = device.stream.record()
    for _ in range(100):
        if event.is_done():
            break
    assert event.is_done()


@pytest.mark.parametrize("seed", range(30))
def test_random_programs_with_events_have_one_result_in_every_order(seed: int) -> None:
    def run(order: int) -> list[list[int]]:
        draw, device = random.Random(seed), SimDevice(seed=order)
        streams = [device.stream, *(device.new_stream() for _ in range(3))]
        blocks = [block_of(device, i, i + 1) for i in range(5)]
        events = {id(block): device.stream.record() for block in blocks}
        for _ in range(30):
            stream, (left, right, out) = draw.choice(streams), draw.choices(blocks, k=3)
            for block in (left, right, out):
                stream.wait_for(events[id(block)])
            add(device, stream, left, right, out)
            for block in (left, right, out):
                events[id(block)] = stream.record()
        for block in blocks:
            device.stream.wait_for(events[id(block)])
        return [values_of(block, device) for block in blocks]

    assert run(0) == run(1) == run(2)


def test_orders_differ_with_the_seed() -> None:
    def order(seed: int) -> str:
        device, ran = SimDevice(seed=seed), []
        for name in "abcdef":
            device.new_stream().launch(name, lambda name=name: ran.append(name), [])  # type: ignore[misc]
        device.synchronize()
        return "".join(ran)

    assert len({order(seed) for seed in range(20)}) > 10
    assert order(3) == order(3)


# -- wrong uses --------------------------------------------------------------------------------------------------------


def test_a_read_that_nothing_orders_behind_the_write_is_refused() -> None:
    device = SimDevice()
    block, other = block_of(device, 1, 2), device.new_stream()
    with pytest.raises(DeviceError, match=r"reads bytes 0 to 16 .* while copy to the device in stream 0 may still"):
        values_of(block, device, other)
    other.wait_for(device.stream.record())
    assert values_of(block, device, other) == [1, 2]


def test_a_write_that_nothing_orders_behind_a_read_is_refused() -> None:
    device = SimDevice()
    block, other = block_of(device, 1, 2), device.new_stream()
    written = device.stream.record()
    device.stream.launch("read", NOTHING, [Use.whole(block.owner, writes=False)])
    other.wait_for(written)
    with pytest.raises(DeviceError, match=r"writes .* while read in stream 0"):
        other.launch("write", NOTHING, [Use.whole(block.owner, writes=True)])


def test_work_that_the_host_has_waited_for_comes_before_all_that_it_queues_then() -> None:
    device = SimDevice()
    block = block_of(device, 4, 5)
    device.stream.synchronize()
    assert values_of(block, device, device.new_stream()) == [4, 5]


def test_memory_to_which_nothing_was_written_is_not_read() -> None:
    device = SimDevice()
    block = device.pool.allocate(16, device.stream)
    with pytest.raises(DeviceError, match="nothing was written"):
        values_of(block, device)


def test_freed_memory_is_not_used_and_not_freed_twice() -> None:
    device = SimDevice()
    block = block_of(device, 1)
    device.pool.free(block, device.stream)
    with pytest.raises(DeviceError, match="which was freed"):
        values_of(block, device)
    with pytest.raises(DeviceError, match="which was freed"):
        device.pool.free(block, device.stream)


def test_memory_is_not_freed_in_front_of_work_that_uses_it() -> None:
    device = SimDevice()
    block, other = block_of(device, 1), device.new_stream()
    other.wait_for(device.stream.record())
    other.launch("read", NOTHING, [Use.whole(block.owner, writes=False)])
    with pytest.raises(DeviceError, match=r"free: it writes .* while read in stream"):
        device.pool.free(block, device.stream)


def test_dropped_memory_is_freed_behind_the_work_of_all_streams() -> None:
    device = SimDevice()
    block, other = block_of(device, 1), device.new_stream()
    other.wait_for(device.stream.record())
    other.launch("read", NOTHING, [Use.whole(block.owner, writes=False)])
    device.pool.drop(block, device.stream)
    again = device.pool.allocate(8, device.stream)
    assert again.address == block.address and block.owner.is_free
    assert values_of(block_of(device, 7), device) == [7]


def test_a_stream_takes_memory_again_that_it_freed_and_others_only_when_that_is_over() -> None:
    device = SimDevice()
    block, other = block_of(device, 1), device.new_stream()
    device.pool.free(block, device.stream)
    assert device.pool.allocate(8, other).address != block.address
    assert device.pool.allocate(8, device.stream).address == block.address


def test_the_host_does_not_read_memory_of_the_device() -> None:
    block = block_of(SimDevice(), 1)
    with pytest.raises(DeviceError, match="the host reads"):
        np.asarray(block.owner)


def test_memory_of_another_device_is_not_used() -> None:
    one, other = SimDevice("sim:0"), SimDevice("sim:1")
    block = block_of(one, 1)
    with pytest.raises(DeviceError, match=r"runs on sim:1 and uses .* on sim:0"):
        values_of(block, other)


def test_an_address_is_found_in_its_block_or_nowhere() -> None:
    device = SimDevice()
    block = block_of(device, 1, 2)
    assert device.pool.find(block.address + 8) == (block.owner, 8)
    for address in (block.address + 16, block.address - 1, 0):
        with pytest.raises(DeviceError, match="lies in no block"):
            device.pool.find(address)


def test_memory_ends_with_the_largest_blocks_named_and_nothing_lost() -> None:
    device = SimDevice(capacity=1 << 12)
    block = device.pool.allocate(3000, device.stream, "weights")
    for _ in range(3):
        with pytest.raises(
            OutOfMemoryError, match=r"2,000 bytes do not fit: 3,072 of 4,096[\s\S]*weights \(3,000 bytes"
        ):
            device.pool.allocate(2000, device.stream)
    device.pool.free(block, device.stream)
    device.pool.allocate(2000, device.stream)


def test_a_lost_device_is_an_error_wherever_it_is_used() -> None:
    device = SimDevice()
    block, event = block_of(device, 1), device.stream.record()
    device.unplug()
    uses: list[Callable[[], Any]] = [
        event.wait, event.is_done, device.stream.record, device.stream.synchronize, device.synchronize,
        lambda: values_of(block, device), lambda: block_of(device, 2), lambda: device.pool.free(block, device.stream),
        lambda: device.stream.wait_for(event),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(DeviceError, match="does not answer any more"):
            use()


def test_a_forked_process_is_told_that_the_device_is_not_its_own() -> None:
    device = SimDevice()
    block = block_of(device, 1)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        try:
            values_of(block, device)
        except DeviceError as error:
            sender.send(str(error))

    process = context.Process(target=child)
    process.start()
    process.join(60)
    assert receiver.poll() and "belongs to the process that this one was forked from" in receiver.recv()
    assert values_of(block, device) == [1]


def test_an_event_that_can_never_be_reached_is_reported() -> None:
    device = SimDevice()
    one, other = device.new_stream(), device.new_stream()
    late = SimDevice().stream.record()
    late.queues = device.queues  # recorded nowhere on this device
    one.wait_for(late)
    other.wait_for(one.record())
    with pytest.raises(InternalError, match="wait for each other"):
        other.synchronize()


# -- errors of work ----------------------------------------------------------------------------------------------------


def fail() -> None:
    raise ValueError("an index lies outside")


def test_an_error_of_work_reaches_the_host_with_the_elements_and_leaves_others_alone() -> None:
    device = SimDevice()
    bad, good, out = block_of(device, 1), block_of(device, 2), block_of(device, 0)
    device.stream.launch("fails", fail, [Use.whole(bad.owner, writes=True)])
    add(device, device.stream, bad, good, out)
    for block in (bad, out, bad):
        with pytest.raises(ValueError, match="an index lies outside"):
            values_of(block, device)
    assert values_of(good, device) == [2]
    add(device, device.stream, good, good, out)  # written anew
    assert values_of(out, device) == [4]


def test_work_does_not_run_in_the_context_of_the_caller_that_waits() -> None:
    device, found = SimDevice(), []
    device.stream.launch("look", lambda: found.append(get_context()), [])
    with set_context(device="a device", staging="a trace", modes=frozenset({"eager"})):
        device.synchronize()
    assert found == [AT_REST]


def test_threads_may_share_a_device() -> None:
    device, found = SimDevice(), []

    def work(number: int) -> None:
        stream = device.new_stream()
        for i in range(50):
            block = block_of(device, number, i, stream=stream)
            found.append(values_of(block, device, stream) == [number, i])
            device.pool.free(block, stream)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 200


def test_an_address_is_found_while_another_thread_allocates_below_it() -> None:
    device, ended = SimDevice(), threading.Event()
    below, block = (device.pool.allocate(8, device.stream) for _ in range(2))
    device.pool.free(below, device.stream)

    def allocate_and_free() -> None:
        while not ended.is_set():
            device.pool.free(device.pool.allocate(8, device.stream), device.stream)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=allocate_and_free)
    thread.start()
    try:
        assert all(device.pool.find(block.address) == (block.owner, 0) for _ in range(50_000))
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)


def test_a_host_that_never_waits_does_not_fill_its_memory() -> None:
    device = SimDevice()
    block = block_of(device, 0)
    for _ in range(3000):
        device.stream.launch("again", NOTHING, [Use.whole(block.owner, writes=True)])
    assert len(device.stream.items) <= 1001


def test_work_that_reads_bytes_which_nothing_has_written_is_refused_also_in_memory_that_was_used_before() -> None:
    device = SimDevice()
    for _ in range(2):  # the second block is the first one's memory
        block = device.pool.allocate(64, device.stream, "a tensor")
        with pytest.raises(DeviceError, match=r"reads bytes 0 to 64 of a tensor \(64 bytes.*which nothing has written"):
            device.stream.launch("read", lambda: None, [Use.whole(block.owner, writes=False)])
        device.stream.launch("write", lambda: None, [Use.whole(block.owner, writes=True)])
        device.stream.launch("read", lambda: None, [Use.whole(block.owner, writes=False)])
        device.pool.free(block, device.stream)
    device.synchronize()
