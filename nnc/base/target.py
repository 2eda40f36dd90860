"""Figures of a kind of machine by which lowering and kernels choose.

The records' own values are those of processors with vectors of 256 or 512 bits, as x86-64 has them, measured on AMD Zen 4 and
Intel Granite Rapids with two cores. A figure without a reason beside it was found by trial; how far it may go without harm was
not written down. `nnc.device.targets` has the machines: the facts that a system tells, and the figures in which cores of
another kind differ; `nnc.device.model` says which figures follow from the facts. Values of `Grids` follow from an H100's data
sheet, and were not measured.
"""

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
        first_cache_ways: lines of the nearest cache that have the same set.
    """

    line_bytes: int = 64  # every x86-64, and most ARM cores
    page_bytes: int = 4096  # where pages are larger, touching more often costs little
    least_prefetched_bytes: int = 1 << 20  # fewer are there sooner than a thread
    prefetched_share: int = 4
    cached_bytes: int = 1 << 18  # smaller values stay in the caches
    first_cache_bytes: int = 48 << 10
    second_cache_bytes: int = 1 << 20
    first_cache_ways: int = 12


class Threads(NamedTuple):
    """Costs of threads, and how loops are cut for them.

    Attributes:
        moved_part_bytes: bytes that a thread must have to move.
        inline_bytes: bytes that a loop moves itself instead of calling a kernel.
        parts_of_a_thread: parts into which a loop is cut for each thread.
        caller_pauses: pauses that a caller waits for a worker before it does the worker's part itself.
        worker_pauses: pauses that a worker waits for work before it sleeps.
        look_pauses: pauses, a power of two, after which a worker asks whether it lost its processor since it asked before; then it
            sleeps at once.
        short_looks: how often it then sleeps after as many pauses again, before it waits for long.
    """

    moved_part_bytes: int = 1 << 17
    inline_bytes: int = 64
    parts_of_a_thread: int = 16  # with 4, a product of 28 panels took a fifth longer: the last part was an eighth of it
    # 0.2 ms with 26 ns for a pause: a worker that takes much longer may have lost its processor
    caller_pauses: int = 8000
    # 1.8 ms, as libgomp's threads: a worker that sleeps is often woken on its caller's processor and stays there for a tick
    # of 4 ms. Offering the processor meanwhile (sched_yield) is worse: Linux takes a whole slice of time from the caller
    worker_pauses: int = 70_000
    # 50 µs. A worker that waits longer beside other processes takes their time, and its own later
    look_pauses: int = 2048
    short_looks: int = 64


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

    call_seconds: float = 5e-6
    signal_seconds: float = 3e-5
    flops_per_second: float = 2e10
    bytes_per_second: float = 1e10
    compiled_call_seconds: float = 2e-8
    saved_seconds: float = 1e-3
    saved_part: float = 0.2
    heavy_seconds: float = 1e-3  # shorter kernels hold Python's lock for much of their time
    message_seconds: float = 4e-6  # a sum of 4 floats of two processes on one machine
    message_bytes_per_second: float = 5e9  # a sum of 1 MiB there takes 0.4 ms
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

    row_elements: int = 1 << 15  # more would not stay in the cache
    column_elements: int = 1 << 10
    nodes: int = 96  # a longer one spills registers and takes long to compile
    operands: int = 32


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

    grain: int = 16_000
    generic_elements: int = 1024
    row_parts: int = 16  # a fixed number, so that sums do not depend on the threads
    inline_instructions: int = 256
    unrolled_instructions: int = 24
    column_vectors: int = 16
    far_bytes: int = 1024  # the next row is on another page soon
    summands: int = 128  # equal terms lose up to 1e-6 of the sum in float32, with 256 up to 3e-6
    short_sums: int = 512
    summed_columns: int = 1024
    saved_instructions: int = 8
    stack_bytes: int = 1 << 16
    transcendental_instructions: int = 16
    tiles: tuple[int, ...] = (64, 32, 16)
    strided_instructions: int = 8
    register_bytes: int = 64


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
        far_rows: rows of all parts from which on that pays where rows of the right matrix are far apart, or converted.
        unpacked_bytes: bytes of a right matrix up to which it is read as it lies.
        read_cost: time to read a vector for a multiplication, in times of the multiplication.
        displacing_bytes: bytes between rows of a matrix by which they displace each other in the nearest cache.
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
        copied_vector_bytes: bytes of a vector whose elements are no neighbours, up to which it is copied for a matrix.
        prefetched_rows: rows between the row that is added and the row that is prefetched.
        added_rows: rows of the matrix that are added at once.
        prefetched_terms: terms between the term that is multiplied and the term that is prefetched.
        solved_part_volume: multiplications of a triangular system that a thread must have.
        solved_buffer_bytes: bytes of solved rows on a thread's stack.
    """

    panel_terms: int = 1024  # it then stays in the second-level cache
    summands: int = 256  # to put the sums of a tile aside takes as long as 8 terms
    sum_bytes: int = 1 << 18
    part_volume: int = 1 << 19  # some ten microseconds
    parts: int = 16
    least_rows: int = 64  # each part packs its own panel
    packed_rows: int = 96
    far_rows: int = 48
    unpacked_bytes: int = 1 << 17
    read_cost: float = 0.1
    displacing_bytes: int = 1 << 12  # its sets repeat every 4 KB
    slow_second_cache: bool = False  # AMD's cores are as fast either way
    enough_rows: int = 512
    shared_volume: int = 1 << 23  # smaller ones would take longer by a hundredth or two
    shared_tile: int = 1 << 16  # smaller ones would take longer by a hundredth or two
    inline_volume: int = 1024
    small_volume: int = 40**3  # about two microseconds of NumPy's product
    library_volume: int = 40**3
    streamed_part_volume: int = 1 << 17  # some five microseconds
    few_columns: int = 8
    row_matrix_bytes: int = 1 << 16  # below, the nearest cache serves panels as well
    row_panel_bytes: int = 1 << 13  # a part of the nearest cache, and rows of two pages
    row_parts: int = 8  # memory limits, not the cores
    copied_vector_bytes: int = 1 << 15  # it lies on the stack
    prefetched_rows: int = 2  # the processor does not look past a page
    added_rows: int = 2  # the sums are read and written half as often
    prefetched_terms: int = 8
    solved_part_volume: int = 1 << 18
    solved_buffer_bytes: int = 1 << 19


class Attention(NamedTuple):
    """Blocks of attention.

    Attributes:
        keys: keys of a block.
    """

    keys: int = 64


class Convolutions(NamedTuple):
    """The constants that decide when operands of convolutions are reordered.

    Attributes:
        large_image: places from which on reordering activations costs a 1 x 1 convolution more than it brings.
        short_row: places of a row up to which kernels for channels that are last do not pay.
        few_rows: rows of a product below which reordering the weight costs more than it brings.
        turning_cost: cost of turning a tensor's axes, in times of a library's own reorder.
        padded_positions: positions of a printed convolution's result up to which they read a large weight but once.
        narrow: channels of a result up to which a printed convolution of one image is faster than the library's.
        most_boxes: products that a printed convolution may consist of, for places whose windows reach into the padding.
        long_window: places of a window from which on that holds with strides, too.
    """

    large_image: int = 512
    short_row: int = 4  # they take one row at a time
    few_rows: int = 1024
    turning_cost: int = 3
    padded_positions: int = 128
    narrow: int = 8  # the library fills half of its vectors: 1.1 to 8 times as fast on Zen 5
    long_window: int = 16
    most_boxes: int = 9  # windows of 3 × 3; each product takes a tenth of a second to compile


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

    rows_at_once: int = 16
    shared_elements: int = 1 << 17
    least_quick: int = 1 << 18
    digit_bits: int = 11
    registers: int = 4
    drawn_bytes: int = 16
    searched_bytes: int = 16


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

    threads: int = 256  # eight blocks fill a multiprocessor, so that few threads wait where the last blocks end
    most_threads: int = 1024  # of a block, on every GPU
    vector_bytes: int = 16  # the widest access of one thread
    aligned_bytes: int = 64  # of places in the arena; arrays begin at multiples of 256
    kept_words: int = 64  # of the 128 registers that a thread has where 512 threads share a multiprocessor
    kept_vectors: int = 8
    vectors_at_once: int = 4  # 64 bytes under way for a thread, 128 KiB for the 2,048 threads of a multiprocessor
    lanes: int = 32
    shared_bytes: int = 48 << 10  # more must be asked for at the launch
    busy_threads: int = 132 * 1024  # half of the threads that an H100 holds, in 132 multiprocessors
    summands: int = 256  # 2e-6 of the sum is lost after some 1,000 terms in float32
    parts: int = 512  # four blocks for each multiprocessor, which take turns
    least_parts: int = 4  # the launch that adds up takes as long as 5 MB of memory
    part_rows: int = 64  # rows of 8 warps: each of them sums 8 before it waits for the others
    part_elements: int = 1 << 14  # 16 vectors of each of 256 threads
    scattered_share: int = 8  # smaller operands stay in the nearest cache, where a thread reads each element
    tile: int = 32  # elements; a warp reads a whole number of sectors of any dtype of 1 byte or more
    turned: int = 8  # float32 of a sector: shorter loops read whole sectors in any order


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
        backends: the backends whose kernels may run, the best one first; none named: all, by the kernels' priorities.
        registers: vector registers of a core.
        has_masks: whether instructions that work on some lanes of a vector are as fast as others.
    """

    kind: str
    vector_bytes: int
    cores: int
    memory: Memory = Memory()
    threads: Threads = Threads()
    schedule: Schedule = Schedule()
    fusion: Fusion = Fusion()
    loops: Loops = Loops()
    products: Products = Products()
    attention: Attention = Attention()
    convolutions: Convolutions = Convolutions()
    sorting: Sorting = Sorting()
    backends: tuple[str, ...] = ()
    registers: int = 32
    has_masks: bool = True

    def __hash__(self) -> int:
        return hash((self.kind, self.vector_bytes, self.cores))  # the rest hardly ever differs, and takes long


@dataclass(frozen=True, slots=True)
class GpuTarget(Target):
    """A device with many threads.

    Attributes:
        grids: the shapes of launches.
    """

    grids: Grids = Grids()

    __hash__ = Target.__hash__
