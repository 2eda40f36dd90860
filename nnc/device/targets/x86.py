"""Processors with vectors of 256 or 512 bits, as x86-64 has them; measured on AMD Zen 4 and Intel Granite Rapids with two cores.

A figure without a reason beside it was found by trial; how far it may go without harm was not written down. `cpu_target` replaces
those that a system tells.
"""

from __future__ import annotations

from nnc.base.options import CPU
from nnc.device.target import (
    Attention,
    Convolutions,
    Fusion,
    Loops,
    Memory,
    Products,
    Schedule,
    Sorting,
    Target,
    Threads,
)

X86 = Target(
    kind=CPU,
    vector_bytes=64,
    cores=2,
    memory=Memory(
        line_bytes=64,  # every x86-64, and most ARM cores
        page_bytes=4096,  # where pages are larger, touching more often costs little
        least_prefetched_bytes=1 << 20,  # fewer are there sooner than a thread
        prefetched_share=4,
        cached_bytes=1 << 18,  # smaller values stay in the caches
        first_cache_bytes=48 << 10,
        second_cache_bytes=1 << 20,
    ),
    threads=Threads(
        part_ns=8000.0,  # waking a thread takes its caller 8 µs
        moved_part_bytes=1 << 17,
        inline_bytes=64,
        parts_of_a_thread=16,  # with 4, a product of 28 panels took a fifth longer: the last part was an eighth of it
        caller_pauses=8000,  # 0.2 ms with 26 ns for a pause: a worker that takes much longer may have lost its processor
        # 2 ms, as libgomp's threads: a worker that sleeps is often woken on its caller's processor and stays there for a tick
        # of 4 ms. Offering the processor meanwhile (sched_yield) is worse: Linux takes a whole slice of time from the caller
        worker_pauses=80_000,
    ),
    schedule=Schedule(
        call_seconds=5e-6,
        signal_seconds=3e-5,
        flops_per_second=2e10,
        bytes_per_second=1e10,
        compiled_call_seconds=2e-8,
        saved_seconds=1e-3,
        saved_part=0.2,
        heavy_seconds=1e-3,  # shorter kernels hold Python's lock for much of their time
        message_seconds=4e-6,  # a sum of 4 floats of two processes on one machine
        message_bytes_per_second=5e9,  # a sum of 1 MiB there takes 0.4 ms
    ),
    fusion=Fusion(
        row_elements=1 << 15,  # more would not stay in the cache
        column_elements=1 << 10,
        nodes=96,  # a longer one spills registers and takes long to compile
        operands=32,
    ),
    loops=Loops(
        grain=16_000,
        generic_elements=1024,
        row_parts=16,  # a fixed number, so that sums do not depend on the threads
        inline_instructions=256,
        unrolled_instructions=24,
        column_vectors=16,
        far_bytes=1024,  # the next row is on another page soon
        summands=128,  # equal terms lose up to 1e-6 of the sum in float32, with 256 up to 3e-6
        short_sums=512,
        summed_columns=1024,
        saved_instructions=8,
        stack_bytes=1 << 16,
        transcendental_instructions=16,
        tiles=(64, 32, 16),
        strided_instructions=8,
        register_bytes=64,
    ),
    products=Products(
        panel_terms=1024,  # it then stays in the second-level cache
        summands=256,  # to put the sums of a tile aside takes as long as 8 terms
        sum_bytes=1 << 18,
        part_volume=1 << 19,  # some ten microseconds
        parts=16,
        least_rows=64,  # each part packs its own panel
        packed_rows=96,
        read_cost=0.1,
        displacing_bytes=1 << 12,  # its sets repeat every 4 KB
        slow_second_cache=False,  # AMD's cores are as fast either way
        enough_rows=512,
        shared_volume=1 << 23,  # smaller ones would take longer by a hundredth or two
        shared_tile=1 << 16,  # smaller ones would take longer by a hundredth or two
        inline_volume=1024,
        small_volume=40**3,  # about two microseconds of NumPy's product
        library_volume=40**3,
        streamed_part_volume=1 << 17,  # some five microseconds
        few_columns=8,
        row_matrix_bytes=1 << 16,  # below, the nearest cache serves panels as well
        row_panel_bytes=1 << 13,  # a part of the nearest cache, and rows of two pages
        row_parts=8,  # memory limits, not the cores
        prefetched_rows=2,  # the processor does not look past a page
        added_rows=2,  # the sums are read and written half as often
        prefetched_terms=8,
        solved_part_volume=1 << 18,
        solved_buffer_bytes=1 << 19,
    ),
    attention=Attention(
        keys=64,
        features=256,  # a block then takes a megabyte of stack
    ),
    convolutions=Convolutions(
        large_image=512,
        short_row=4,  # they take one row at a time
        few_rows=1024,
        turning_cost=3,
    ),
    sorting=Sorting(
        rows_at_once=16,
        shared_elements=1 << 17,
        least_quick=1 << 18,
        digit_bits=11,
        registers=4,
        drawn_bytes=16,
        searched_bytes=16,
    ),
)
