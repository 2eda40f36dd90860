"""Prints steps, loops and branches of a program as one function: kernels are called where their tensors lie, iterations are real
loops.

steps in a row                           one call each
loop 0, copies (a, b), first = 0:        a: head, test → leave, tail, count;  b: likewise;  back to a
steps without a compiled kernel          one call back into Python for all that stand in a row
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import field
from enum import IntEnum
from itertools import groupby

from nnc.base import dtypes
from nnc.base.records import record
from nnc.errors import InternalError
from nnc.lower.kernels.builder import Code, Slot, Value
from nnc.lower.kernels.native import Native
from nnc.lower.plan.costs import step_bytes, step_flops
from nnc.lower.plan.liveness import touched, walk
from nnc.lower.plan.stages import Branches, Iteration, Kind, Loop, Planned, Step, Steps, View
from nnc.run.arguments import FrameLayout

CALLS = 1 << 20  # a call back is numbered: a multiple of this, new each time, plus the number of the steps to be run
POLL = CALLS - 1  # no steps: Python only looks for interrupts
_POLL_SECONDS = 0.02  # between two looks for interrupts, as estimated: a kernel may take five times as long
_UNPOLLED_SECONDS = 0.05  # a loop that is known to take no longer looks for none
# that an iteration counts: looks are some milliseconds apart, of which Python's lock costs a busy program one
_LEAST_SECONDS = 5e-9
_INLINE_SECONDS = 1e-9  # of a step that the loop holds itself
KINDS = 8  # at least as many as there are reasons


class Failure(IntEnum):
    """The reason why a program stopped; with a number it makes up the entry's result."""

    REFUSED = 1  # an input has another spec: its number
    KERNEL = 2  # a kernel refused its operands: number of the step
    PYTHON = 3  # Python raised: number of the block of steps
    LIMIT = 4  # a loop is longer than it may be: number of the step
    BRANCH = 5  # there is no such branch: number of the step
    INTERRUPT = 6  # Python raised while it looked for interrupts
    DRIVER = 7  # a function of a device's driver failed

    def code(self, number: int) -> int:
        """Returns the number that the entry returns."""
        return KINDS * number + self

    @staticmethod
    def of(code: int) -> tuple[Failure, int]:
        """Kind and number of an entry's result."""
        return Failure(code % KINDS), code // KINDS


@record
class Outline:
    """The input of printing a program: its steps' compiled kernels, `states` and `numbers` of steps (all by identity of the step).

    `blocks` are the steps in a row that run in Python, in the order in which they are printed. `from_frame` are the numbers that
    the text reads from the frame; None: they are a part of the text.
    """

    planned: Planned
    natives: Mapping[int, Native]
    states: Mapping[int, int]
    numbers: Mapping[int, int]
    words: FrameLayout
    blocks: list[Steps] = field(default_factory=list)
    flushes: bool = False  # whether some of the program runs with denormal numbers flushed to 0
    polls: bool = True  # whether Python looks for interrupts in long loops
    from_frame: list[int] | None = None

    @classmethod
    def of(
        cls, planned: Planned, natives: Mapping[int, Native], states: Mapping[int, int], words: FrameLayout,
        polls: bool = True, sized: bool = False,
    ) -> Outline:  # fmt: skip
        """Returns the outline of a program, whose steps are numbered in the order of the text."""
        numbers = {id(step): i for i, step in enumerate(walk(planned.bound.steps))}
        return cls(planned, natives, states, numbers, words, polls=polls, from_frame=[] if sized else None)

    def is_native(self, steps: Iterable[Step]) -> bool:
        """Whether all steps, those within regions included, run without Python."""
        return all(step.region is not None or id(step) in self.natives for step in walk(steps))

    def place(self, number: int) -> tuple[int, int]:
        """Returns the start of a buffer: the word of the frame that holds an address, and the offset from there."""
        buffer, offset = self.planned.bound.buffers[number], self.planned.offsets[number]
        if offset is not None:
            return FrameLayout.arena_at, offset
        find = {Kind.INPUT: self.words.input, Kind.OUTPUT: self.words.result, Kind.CONSTANT: self.words.constant}
        return find[buffer.kind](buffer.index), 0

    def seconds(self, steps: Iterable[Step]) -> float:
        """About how long steps take; of a loop of unknown length in them, one iteration."""
        total, costs = 0.0, self.planned.machine.schedule
        for step in steps:
            if isinstance(step.region, Loop):
                total += (step.region.length or 1) * self.iteration_seconds(step.region)
            elif isinstance(step.region, Branches):
                total += max(map(self.seconds, step.region.branches), default=0.0)
            else:
                native = self.natives.get(id(step))
                is_inline = native is not None and native.inline
                total += _INLINE_SECONDS if is_inline else costs.compiled_call_seconds
                work = step_flops(step) / costs.flops_per_second, step_bytes(step) / costs.bytes_per_second
                total += max(work)
        return total

    def iteration_seconds(self, region: Loop) -> float:
        """About how long an iteration of a loop takes."""
        return _INLINE_SECONDS + max(self.seconds(c.steps) for c in region.copies)


def _holds_unknown(step: Step) -> bool:
    """Whether a loop holds loops whose length is not known."""
    inner = (found.region for found in walk((step,)) if found is not step)
    return any(isinstance(region, Loop) and region.length is None for region in inner)


class StepCode(Code):
    """A function that runs steps. Its register %frame holds the frame's address, and %w4, … the frame's words of these numbers;
    words in `given` are parameters.
    """

    shares = False  # an instruction that is written early may not read a result that is written late

    def __init__(self, outline: Outline, name: str, given: Sequence[int] = ()) -> None:
        # Parameters that are more than the frame are all ways to the memory of the steps: no two of them overlap.
        names = ["frame", *(f"w{position}" for position in given)]
        super().__init__(name, [("ptr noalias" if given else "ptr", name) for name in names], returns="internal i64")
        self.outline = outline
        self.called: dict[str, Native] = {}
        self.signatures: dict[str, str] = {}  # how called kernels are declared
        self._failures: list[tuple[str, str]] = []
        self._loaded = set(given)  # words that are in registers
        self._at: dict[int, Value] = {}  # the present iteration of each loop around
        self._local: dict[int, str] = {}  # buffers that lie on the stack
        self._spent: Slot | None = None  # in loops: picoseconds since the last look for interrupts, as estimated

    def word(self, position: int) -> str:
        """Returns the address of a word of the frame."""
        return self.offset("%frame", 8 * position)

    def base(self, position: int) -> str:
        """Returns the address in a word of the frame."""
        if position not in self._loaded:
            self._loaded.add(position)
            with self._early():
                self.line(f"%w{position} = load ptr, ptr {self.word(position)}")
        return f"%w{position}"

    def number(self, number: int) -> Value:
        """Returns a number that follows from sizes: in a text for many sizes a word of the frame, read in front of loops."""
        found = self.outline.from_frame
        if found is None:
            return self.integer(number)
        found.append(number)
        with self._early() if self._at else nullcontext():
            place = self.word(self.outline.words.number(len(found) - 1))
            return Value(self.let(f"load i64, ptr {place}"), dtypes.int64)

    def finish(self) -> None:
        """Prints the return: 0 at the end of the steps, else the reason why they stopped."""
        self.ret(self.integer(0))
        if self._failures:
            self.place("failed")
            found = ", ".join(f"[{code}, %{block}]" for block, code in self._failures)
            self.line(f"%why = phi i64 {found}")
            self.line("ret i64 %why")

    def fail_unless(self, condition: Value, code: int | str) -> None:
        """Prints a stop where a bool does not hold. `code`: the number to return, or the register that holds it."""
        following = self.label("next")
        self._failures.append((self._block, str(code)))
        self.branch(condition, following, "failed")
        self.place(following)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def address(self, view: View) -> str:
        """Returns the address of a view in this iteration."""
        base = self._local.get(view.buffer)
        pointer = self._further(self._memory(view.buffer) if base is None else base, view.offset)
        for number, nbytes in view.advances:
            pointer = self.offset(pointer, self.mul(self._at[number], self.number(nbytes)))
        return pointer

    def _further(self, pointer: str, nbytes: int) -> str:
        is_data = nbytes and self.outline.from_frame is not None
        return self.offset(pointer, self.number(nbytes) if is_data else nbytes)

    def steps(self, steps: Steps) -> None:
        """Runs steps in a row."""
        for run, alike in groupby(steps, self._way):
            run(tuple(alike))

    def _way(self, step: Step) -> Callable[[Steps], None]:
        """Returns the method that prints steps of this one's kind, several in a row at once."""
        if step.region is not None:
            return self._regions
        return self._python if id(step) not in self.outline.natives else self._calls

    def _calls(self, steps: Steps) -> None:
        """Prints calls of compiled kernels."""
        for step in steps:
            self._kernel(step)

    def _kernel(self, step: Step) -> None:
        native = self.outline.natives[id(step)]
        views = (*step.inputs, *step.outputs)
        if native.packed:
            operands = [f"ptr {self._table(native.numbers, views)}"]
        else:
            operands = [f"ptr {self.address(view)}" for view in views]
        state = self.outline.states.get(id(step))
        if state is not None:
            operands.append(f"ptr {self.base(self.outline.words.state(state))}")
        operands += [] if native.packed else [self.number(number).typed for number in native.numbers]
        self._declare(native, [text.split()[0] for text in operands])
        returned = Value(self.let(f"call i64 @{native.name}({', '.join(operands)})"), dtypes.int64)
        if native.may_fail:
            success = self.compare("eq", returned, self.integer(0))
            self.fail_unless(success, Failure.KERNEL.code(self.outline.numbers[id(step)]))

    def _declare(self, native: Native, kinds: Sequence[str]) -> None:
        """Notes a function that is called, and the types of its operands."""
        self.called[native.name] = native
        signature = f"declare i64 @{native.name}({', '.join(kinds)})"
        if self.signatures.setdefault(native.name, signature) != signature:
            raise InternalError(f"{native.name}: two steps call one kernel with other operands")

    def _table(self, sizes: Sequence[int], views: Sequence[View]) -> str:
        """Numbers and starts of views, in a row on the stack; only those that move with the iterations of loops are
        written there again.

        The stores are volatile: LLVM takes ten times as long where it tries to join thousands of them.
        """
        room = self.room(8 * (len(sizes) + len(views)))
        with self._early():
            for i, size in enumerate(sizes):
                self.line(f"store volatile {self.number(size).typed}, ptr {self.offset(room, 8 * i)}")
        for i, view in enumerate(views, len(sizes)):
            with nullcontext() if view.advances else self._early():
                self.line(f"store volatile ptr {self.address(view)}, ptr {self.offset(room, 8 * i)}")
        return room

    @contextmanager
    def _early(self) -> Iterator[None]:
        """Moves the lines written in the block to the begin of the function."""
        lines, self._lines = self._lines, self._slots
        yield
        self._lines = lines

    def _python(self, steps: Steps) -> None:
        self.outline.blocks.append(steps)
        number = len(self.outline.blocks) - 1
        self._call_back(number, Failure.PYTHON.code(number))

    def _call_back(self, number: int, failure: int) -> None:
        """Calls Python, which returns the number of the call; where Python breaks off, the result is that of another call."""
        function = self.let(f"load ptr, ptr {self.word(FrameLayout.callback_at)}")
        new = self.let(f"atomicrmw add ptr {self.word(FrameLayout.next_call)}, i64 {CALLS} monotonic")
        call = Value(self.let(f"add i64 {new}, {number}"), dtypes.int64)
        if self.outline.flushes:  # Python runs in the float mode of the program's caller
            self.declare("declare i64 @nnc_float_mode()")
            self.declare("declare void @nnc_set_float_mode(i64)")
            here = self.let("call i64 @nnc_float_mode()")
            mode = self.let(f"load i64, ptr {self.word(FrameLayout.mode_at)}")
            self.line(f"call void @nnc_set_float_mode(i64 {mode})")
        returned = Value(self.let(f"call i64 {function}({call.typed})"), dtypes.int64)
        if self.outline.flushes:
            self.line(f"call void @nnc_set_float_mode(i64 {here})")
        self.fail_unless(self.compare("eq", returned, call), failure)

    # -- regions -------------------------------------------------------------------------------------------------------

    def decide(self, view: View) -> Value:
        """Reads a number by which a loop or a branch finds its way."""
        return self.load(self.address(view), view.spec.dtype)

    def count(self, view: View, iteration: Value) -> None:
        """Writes the number of an iteration where its steps read it."""
        self.store(self.address(view), iteration)

    def _regions(self, steps: Steps) -> None:
        for step in steps:
            if isinstance(step.region, Loop):
                self._loop(step, step.region)
            elif isinstance(step.region, Branches):
                self._branches(step, step.region)

    def _branches(self, step: Step, region: Branches) -> None:
        index = self.decide(region.index)
        failure = Failure.BRANCH.code(self.outline.numbers[id(step)])
        labels = [self.label("branch") for _ in region.branches]
        after = self.label("after")
        choices = " ".join(f"{index.type} {i}, label %{label}" for i, label in enumerate(labels))
        self._failures.append((self._block, str(failure)))
        self.line(f"switch {index.typed}, label %failed [{choices}]")
        for label, branch in zip(labels, region.branches, strict=True):
            self.place(label)
            self.steps(branch)
            self.jump(after)
        self.place(after)

    def _loop(self, step: Step, region: Loop) -> None:
        counted = self.decide(region.count) if region.count is not None else None
        length = counted if region.length is None else self.number(region.length)
        count = self.slot(self.integer(0))  # iterations that are done
        labels = [self.label("iteration") for _ in region.copies]
        after = self.label("after")
        polls, around = self._polls(step, region), self._spent
        if polls and around is None:
            self._spent = self.slot(self.integer(0))
        # polls lie in a loop around the ring, which is then free of calls
        begin = self.label("ring") if polls else labels[region.first]
        kept = self._reads_iterations(step, region)
        taken = {} if kept or self._local else self._take_in(step)
        self.jump(begin if region.first == 0 else labels[0])
        for k, (label, c) in enumerate(zip(labels, region.copies, strict=True)):
            if k == region.first and polls:
                self.place(begin)
                self.jump(label)
            self.place(label)
            done = self.read(count)
            if counted is not None:
                self._leave(
                    region, c, self.compare("ge", done, counted), self.sub(done, self.integer(1)), length, after
                )
            self._enter(region, done, length, kept)
            self.steps(c.head)
            if c.test is not None:
                self._leave(region, c, self.not_(self.decide(c.test)), done, length, after)
            if region.limit is not None:
                allowed = self.compare("lt", done, self.integer(region.limit))
                self.fail_unless(allowed, Failure.LIMIT.code(self.outline.numbers[id(step)]))
            self.steps(c.tail)
            now = self.add(done, self.integer(1))
            self.write(count, now)
            if region.length is not None and length is not None:
                turn = self.label("turn")
                self.branch(self.compare("eq", now, length), after, turn)
                self.place(turn)
            self.steps(c.turn)
            if k + 1 < len(labels):
                self.jump(begin if k + 1 == region.first else labels[k + 1])
            elif polls:
                self._poll(region, labels[region.first], begin)
            else:
                self.jump(labels[region.first])
        del self._at[region.number]
        self.place(after)
        self._spent = around
        for number, (place, size, written) in taken.items():
            del self._local[number]
            if written:
                self.copy(place, self._memory(number), size)

    def _take_in(self, step: Step) -> dict[int, tuple[str, int, bool]]:
        """Small buffers that only a loop's own code touches, which it keeps on the stack, that is in registers: by number the place
        there, the size, and whether the loop writes it. Their memory is up to date before and after.
        """
        planned, outside = self.outline.planned, set[int]()
        ranges: list[tuple[int, int, int]] = []
        written: set[int] = set()
        for inner in walk((step,)):
            native = self.outline.natives.get(id(inner))
            views = (*inner.inputs, *inner.outputs)
            written.update(view.buffer for view in inner.outputs)
            outside.update(v.buffer for v in views if v.advances or native is None or not native.inline)
            if isinstance(inner.region, Loop) and inner.region.counter is not None:
                written.add(inner.region.counter.buffer)
        numbers = sorted(touched((step,)))
        for number in numbers:
            buffer, offset = planned.bound.buffers[number], planned.offsets[number]
            if buffer.nbytes > planned.machine.loops.register_bytes or buffer.kind is Kind.CONSTANT:
                outside.add(number)
            if offset is not None:
                ranges.append((offset, offset + buffer.nbytes, number))
        for first, end, number in ranges:  # buffers in the same bytes are not there at the same time
            if any(a < end and first < b and other != number for a, b, other in ranges):
                outside.add(number)
        taken = {}
        for number in numbers:
            if number not in outside:
                size = planned.bound.buffers[number].nbytes
                place, memory = self.room(size), self._memory(number)
                self.copy(memory, place, size)
                taken[number] = place, size, number in written
        self._local.update({number: place for number, (place, _, _) in taken.items()})
        return taken

    def _memory(self, number: int) -> str:
        """Returns the address of a buffer."""
        word, begin = self.outline.place(number)
        is_inside = word == FrameLayout.arena_at  # at another offset for another size, also where it is 0 here
        return self.offset(self.base(word), self.number(begin) if is_inside else begin)

    def copy(self, source: str, target: str, nbytes: int) -> None:
        """Copies so many bytes."""
        self.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        self.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {nbytes}, i1 false)")

    def _poll(self, region: Loop, following: str, begin: str) -> None:
        """Lets Python look for interrupts when the iterations of this loop and of those in it have taken long enough."""
        assert self._spent is not None
        asks = self.label("poll")
        one = max(self.outline.iteration_seconds(region), _LEAST_SECONDS)
        spent = self.add(self.read(self._spent), self.number(int(one * 1e12)))
        self.write(self._spent, spent)
        self.branch(self.compare("ge", spent, self.integer(int(_POLL_SECONDS * 1e12))), asks, following)
        self.place(asks)
        self.write(self._spent, self.integer(0))
        self._call_back(POLL, Failure.INTERRUPT.code(0))
        self.jump(begin)

    def _reads_iterations(self, step: Step, region: Loop) -> bool:
        """Whether the number of the present iteration of a loop may be read: by steps in Python, or for the text of an error."""
        natives = (self.outline.natives.get(id(inner)) for inner in walk((step,)) if inner.region is None)
        inner_regions = sum(inner.region is not None for inner in walk((step,)))
        return (
            inner_regions > 1
            or region.limit is not None
            or any(native is None or native.may_fail for native in natives)
        )

    def _leave(
        self, region: Loop, c: Iteration, condition: Value, done: Value, length: Value | None, after: str
    ) -> None:  # fmt: skip
        """Ends the loop where a bool holds; the last iteration that was entered is the one after `done`."""
        leave, stay = self.label("leave"), self.label("stay")
        self.branch(condition, leave, stay)
        self.place(leave)
        before = self._at.get(region.number)
        self._at[region.number] = self._number(region, done, length)
        self.steps(c.leave)
        if before is not None:
            self._at[region.number] = before
        self.jump(after)
        self.place(stay)

    def _number(self, region: Loop, done: Value, length: Value | None) -> Value:
        """Returns the loop's counter where so many iterations are done."""
        if region.reverse and length is not None:
            return self.sub(self.sub(length, self.integer(1)), done)
        return done

    def _enter(self, region: Loop, done: Value, length: Value | None, kept: bool) -> None:
        """Notes the number of the iteration, also in memory where it is kept there."""
        at = self._at[region.number] = self._number(region, done, length)
        if kept:
            self.store(self.word(self.outline.words.round(region.number)), at)
        if region.counter is not None:
            self.count(region.counter, at)

    def _polls(self, step: Step, region: Loop) -> bool:
        """Whether Python must look for interrupts while a loop runs, which is long and does not call Python anyway."""
        if not self.outline.polls or not self.outline.is_native((step,)):
            return False
        is_long = region.length is None or region.length * self.outline.iteration_seconds(region) >= _UNPOLLED_SECONDS
        return is_long or _holds_unknown(step)
