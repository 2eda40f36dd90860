"""Figures of a kind of machine by which lowering and kernels choose: records, with values for each machine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple


class Memory(NamedTuple):
    """Caches, pages and the memory that reaches a core.

    Attributes:
        line_bytes: bytes of a cache line.
        page_bytes: bytes of a page that the system gives.
        least_prefetched_bytes: bytes from which on memory is prefetched.
        prefetched_share: the part of the available memory, one in so many, that one prefetch may touch.
        cached_bytes: bytes of a value that stays in the caches until it is read.
        first_cache_bytes: size of a core's nearest cache of data.
        second_cache_bytes: size of the next one.
    """

    line_bytes: int
    page_bytes: int
    least_prefetched_bytes: int
    prefetched_share: int
    cached_bytes: int
    first_cache_bytes: int
    second_cache_bytes: int


class Threads(NamedTuple):
    """Costs of threads, and how loops are cut for them.

    Attributes:
        part_ns: nanoseconds of work that pay for a thread, at least.
        moved_part_bytes: bytes that a thread must have to move.
        inline_bytes: bytes that a loop moves itself instead of calling a kernel.
        parts_of_a_thread: parts into which a loop is cut for each thread.
        caller_pauses: pauses that a caller waits for a worker before it does the worker's part itself.
        worker_pauses: pauses that a worker waits for work before it sleeps.
    """

    part_ns: float
    moved_part_bytes: int
    inline_bytes: int
    parts_of_a_thread: int
    caller_pauses: int
    worker_pauses: int


class Schedule(NamedTuple):
    """Costs by which steps are assigned to streams.

    Attributes:
        call_seconds: seconds that any kernel takes.
        signal_seconds: seconds until a thread that waits for another one goes on.
        flops_per_second: simple operations that one core does in a second.
        bytes_per_second: bytes of memory that one core reads and writes in a second.
        compiled_call_seconds: seconds that a call within a compiled program takes.
        saved_seconds: seconds that several streams must save.
        saved_part: part of a call that several streams must save.
        heavy_seconds: seconds that a step must take to leave the first stream.
        light_seconds: seconds that a step may take to leave it: a longer one fills the whole machine.
        message_seconds: seconds that the shortest message between processes takes.
        message_bytes_per_second: bytes that a long one reads and writes in a second.
        streams: streams that a program may have where nobody says how many; 0: one for each processor that kernels leave idle.
    """

    call_seconds: float
    signal_seconds: float
    flops_per_second: float
    bytes_per_second: float
    compiled_call_seconds: float
    saved_seconds: float
    saved_part: float
    heavy_seconds: float
    message_seconds: float
    message_bytes_per_second: float
    light_seconds: float = math.inf
    streams: int = 0


class Fusion(NamedTuple):
    """Limits of one fused kernel.

    Attributes:
        row_elements: elements of a row that is traversed in several phases.
        column_elements: the same for rows across memory, many of which are traversed at once.
        nodes: commands in one kernel.
        operands: operands and results of one kernel.
    """

    row_elements: int
    column_elements: int
    nodes: int
    operands: int


class Loops(NamedTuple):
    """The constants that shape the loops of fused kernels.

    Attributes:
        grain: instructions of a part that a thread is woken for.
        generic_elements: elements from which on flat kernels are printed for any length.
        row_parts: parts of a long row that is summed in threads.
        inline_instructions: instructions of a kernel that a loop takes in.
        unrolled_instructions: instructions of a vector loop's body, by which several steps are done at once.
        column_vectors: vectors of columns that are summed at once where rows are wide.
        far_bytes: bytes from one row to the next from which on rows are far apart.
        summands: terms of one sum before it is put aside.
        short_sums: terms up to which a sum is never put aside.
        summed_columns: rows at once that may be summed so.
        saved_instructions: instructions of a value of a row from which on it is kept for the next phase.
        stack_bytes: bytes on the stack for values of a row.
        transcendental_instructions: instructions that a transcendental function counts.
        tiles: iterations along both axes of a tile of a transposed access, the largest that fits first.
        strided_instructions: instructions that an element counts that does not lie next to the last one.
        register_bytes: bytes of a buffer that a loop of a program may keep in registers.
    """

    grain: int
    generic_elements: int
    row_parts: int
    inline_instructions: int
    unrolled_instructions: int
    column_vectors: int
    far_bytes: int
    summands: int
    short_sums: int
    summed_columns: int
    saved_instructions: int
    stack_bytes: int
    transcendental_instructions: int
    tiles: tuple[int, ...]
    strided_instructions: int
    register_bytes: int


class Products(NamedTuple):
    """Tiles and panels of matrix products.

    Attributes:
        panel_terms: terms that a packed panel has at most.
        summands: terms of one sum of a tile before it is put aside, where there are many.
        sum_bytes: bytes on the stack for the sums of a part, where panels follow one another and an epilogue waits for the last.
        part_volume: multiplications that a thread must have.
        parts: parts of a product, at most.
        least_rows: rows of a part, which packs its own panel.
        packed_rows: rows of a part from which on a panel is packed.
        read_cost: time to read a vector for a multiplication, in times of the multiplication.
        displacing_bytes: bytes between rows of the right matrix by which they displace each other in the nearest cache.
        slow_second_cache: whether tiles must spare the way from the second-level cache.
        enough_rows: where that way is slow: rows that are enough of a part of several panels.
        shared_volume: multiplications from which on a product calls code that others share.
        shared_tile: multiplications of a tile above which its code is shared.
        inline_volume: multiplications of a product that loops take in.
        small_volume: multiplications of a product in float64 that nnc's own kernel takes.
        library_volume: multiplications from which on the library's product is faster than a printed one.
        streamed_part_volume: multiplications that a thread must have where memory limits: sums along neighbours, and single rows.
        few_columns: rows or columns up to which a product is a few sums of dot products.
        row_matrix_bytes: bytes of the matrix from which on a single row is multiplied without panels.
        row_panel_bytes: bytes of the sums of a single row that are added to at a time.
        row_parts: parts of a product of a single row, at most.
        prefetched_rows: rows between the row that is added and the row that is prefetched.
        added_rows: rows of the matrix that are added at once.
        prefetched_terms: terms between the term that is multiplied and the term that is prefetched.
        solved_part_volume: multiplications of a triangular system that a thread must have.
        solved_buffer_bytes: bytes of solved rows on a thread's stack.
    """

    panel_terms: int
    summands: int
    sum_bytes: int
    part_volume: int
    parts: int
    least_rows: int
    packed_rows: int
    read_cost: float
    displacing_bytes: int
    slow_second_cache: bool
    enough_rows: int
    shared_volume: int
    shared_tile: int
    inline_volume: int
    small_volume: int
    library_volume: int
    streamed_part_volume: int
    few_columns: int
    row_matrix_bytes: int
    row_panel_bytes: int
    row_parts: int
    prefetched_rows: int
    added_rows: int
    prefetched_terms: int
    solved_part_volume: int
    solved_buffer_bytes: int


class Attention(NamedTuple):
    """Blocks of attention.

    Attributes:
        keys: keys of a block.
        features: features of a head, at most.
    """

    keys: int
    features: int


class Convolutions(NamedTuple):
    """The constants that decide when operands of convolutions are reordered.

    Attributes:
        large_image: places from which on reordering activations costs a 1 x 1 convolution more than it brings.
        short_row: places of a row up to which kernels for channels that are last do not pay.
        few_rows: rows of a product below which reordering the weight costs more than it brings.
        turning_cost: cost of turning a tensor's axes, in times of a library's own reorder.
    """

    large_image: int
    short_row: int
    few_rows: int
    turning_cost: int


class Sorting(NamedTuple):
    """Which sort serves which rows.

    Attributes:
        rows_at_once: rows that are sorted side by side.
        shared_elements: elements of a row from which on threads share it.
        least_quick: elements of a row from which on quicksort is taken.
        digit_bits: bits of a digit of radix sort.
        registers: registers that a network sorts at a time.
        drawn_bytes: bytes whose move takes as long as to draw a random word.
        searched_bytes: bytes whose move takes as long as to search for a value.
    """

    rows_at_once: int
    shared_elements: int
    least_quick: int
    digit_bits: int
    registers: int
    drawn_bytes: int
    searched_bytes: int


class Grids(NamedTuple):
    """The constants that shape the launches of fused kernels on a device with many threads.

    Attributes:
        threads: threads of a block.
        most_threads: threads of a block that traverses a long row.
        vector_bytes: bytes that a thread reads or writes at once.
        aligned_bytes: every buffer begins at a multiple of these bytes.
        kept_words: registers of 32 bits in which a thread keeps its part of a row from phase to phase.
        kept_vectors: vectors of a row that a thread keeps at most.
        vectors_at_once: vectors that a thread reads before it computes with the first of them, in a loop along a row.
        lanes: threads of a warp.
        shared_bytes: shared memory that a kernel declares at most.
        busy_threads: threads that keep the whole device busy.
        summands: terms of one sum before it is put aside.
        parts: parts of a long row, at most.
        least_parts: parts from which on another launch pays.
        part_rows: iterations of a row across memory that a part has at least.
        part_elements: elements of a row along memory that a part has at least.
        scattered_share: the part of a nest's elements, one in so many, from which on an operand at strides makes threads take
            single elements.
        tile: elements along both axes of a tile that is turned in shared memory.
        turned: iterations of both loops of such tiles, at least.
    """

    threads: int
    most_threads: int
    vector_bytes: int
    aligned_bytes: int
    kept_words: int
    kept_vectors: int
    vectors_at_once: int
    lanes: int
    shared_bytes: int
    busy_threads: int
    summands: int
    parts: int
    least_parts: int
    part_rows: int
    part_elements: int
    scattered_share: int
    tile: int
    turned: int


@dataclass(frozen=True, slots=True)
class Target:
    """The machine that programs are made for: figures that its system tells, and figures that only trial does. Where a device has
    none of its own, they are its host's.

    Attributes:
        kind: the kind of devices whose kernels it runs (`nnc.device.kind_of`).
        vector_bytes: bytes of the longest vectors that code may use.
        cores: processors that the process may use.
        memory: caches, pages and the memory that reaches a core.
        threads: costs of threads, and how loops are cut for them.
        schedule: costs by which steps are assigned to streams.
        fusion: limits of one fused kernel.
        loops: how the loops of fused kernels are printed.
        products: tiles and panels of matrix products.
        attention: blocks of attention.
        convolutions: when operands of convolutions are reordered.
        sorting: which sort serves which rows.
    """

    kind: str
    vector_bytes: int
    cores: int
    memory: Memory
    threads: Threads
    schedule: Schedule
    fusion: Fusion
    loops: Loops
    products: Products
    attention: Attention
    convolutions: Convolutions
    sorting: Sorting

    def __hash__(self) -> int:
        return hash((self.kind, self.vector_bytes, self.cores))  # the rest hardly ever differs, and takes long


@dataclass(frozen=True, slots=True)
class GpuTarget(Target):
    """A device with many threads.

    Attributes:
        grids: the shapes of launches.
    """

    grids: Grids

    __hash__ = Target.__hash__
