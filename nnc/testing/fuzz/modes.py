"""The ways to run a program, as source that uses the public API, and the switch that turns specialised calls off.

The same source gives the expected results: it runs once more by references, in a namespace in which the transforms are their
definitions (`nnc.testing.fuzz.plain`). `plain` is the source for that run, where it differs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import indent

import nnc
from nnc.base import dtypes
from nnc.testing import devices as _devices  # noqa: F401  ("sim:0" and "ptx:0")
from nnc.testing.fuzz.plain import ByColumns, ByDifferences, Plain
from nnc.testing.fuzz.program import inputs_source
from nnc.testing.fuzz.subject import Subject


@dataclass(frozen=True)
class Mode:
    """A way to run a program: `source` makes the body of a function without arguments."""

    name: str
    source: Callable[[Subject], str]
    plain: Callable[[Subject], str] | None = None
    applies: Callable[[Subject], bool] = lambda subject: True
    namespaces: tuple[Plain, ...] = (Plain(),)  # the first makes the expected results, the others further allowed ones
    slack: float = 0.0  # error of the expected values themselves, relative to 1 and the largest, for float64
    flushes: bool | None = None  # takes all denormal numbers as 0, or none; by default those below float64, or none


def _says(text: str) -> Callable[[Subject], str]:
    return lambda subject: text


CALLED = "return [f(*inputs(k)) for k in (0, 1, 2, 0)]"
ONCE_EACH = _says("return [program(*inputs(k)) for k in (0, 1, 2, 0)]")
NUMBERS = (
    "f = nnc.compile(program)\n"
    "return [f(*[x.item() if getattr(x, 'weak', False) else x for x in inputs(k)]) for k in (0, 1, 2, 0)]"
)
ONCE = _says("return program(*inputs())")


def compiled(options: str = "") -> Callable[[Subject], str]:
    """A compiled function that is called several times."""
    return _says(f"f = nnc.compile(program{options})\n{CALLED}")


def donated(subject: Subject) -> str:
    """All inputs are donated."""
    every = tuple(range(len(subject.program.inputs)))
    return f"f = nnc.compile(program, donate_argnums={every})\n{CALLED}"


def unspecialised(subject: Subject) -> str:
    """Eagerly and compiled, where functions run as they are, even in calls that were met before."""
    return (
        'with with_mode("unspecialised"):\n'
        "    f = nnc.compile(program)\n"
        "    return [g(*inputs(k)) for g in (program, f) for k in (0, 1, 2, 0)]"
    )


def interpreted(subject: Subject) -> str:
    """Compiled, but run from Python."""
    return f'with patch.dict(os.environ, NNC_NATIVE="0"):\n    f = nnc.compile(program)\n    f(*inputs(1))\n{CALLED}'


def tight(subject: Subject) -> str:
    """With less memory than the plan takes by itself."""
    return (
        "peak = nnc.compile(program).lower(*inputs()).compile().memory_plan.peak\n"
        "try:\n"
        "    return nnc.compile(program, memory_budget=peak * 3 // 4)(*inputs())\n"
        "except nnc.errors.MemoryBudgetError:\n"
        "    return program(*inputs())"
    )


def guarded(subject: Subject) -> str:
    """With bytes around every buffer that nothing may change."""
    return f'with patch.dict(os.environ, NNC_GUARD="1"):\n    f = nnc.compile(program)\n    f(*inputs(1))\n{CALLED}'


def stored(subject: Subject) -> str:
    """The second function finds the program of the first on disk."""
    return (
        "with TemporaryDirectory() as folder, patch.dict(os.environ, NNC_CACHE_DIR=folder):\n"
        "    found = []\n"
        "    for k in (0, 1, 0):\n"
        "        found.append(nnc.compile(program)(*inputs(k)))\n"
        "        for thread in threading.enumerate():  # which writes the program\n"
        "            if thread.name == 'nnc keeps':\n"
        "                thread.join()\n"
        "    return found"
    )


def weakened(change: str) -> Callable[[Subject], str]:
    """The dtypes of results where all floats are weak, times an array of float32: a function of weak arrays alone is weak."""
    return _says(
        f"weak = lambda x: {change} if not isinstance(x, (int, float)) and x.dtype == 'float32' else x\n"
        "def form(y):\n"
        "    return nnp.zeros(y.shape, (y * nnp.ones((), 'float32')).dtype)\n"
        "return [form(y) for f in (program, nnc.compile(program)) for y in f(*map(weak, inputs()))]"
    )


def digits(change: str) -> Callable[[Subject], str]:
    """All digits of the results, eagerly and compiled, where `change` is made of numbers."""
    return _says(
        f"number = lambda x: {change} if isinstance(x, float) or getattr(x, 'weak', False) and x.dtype == 'float32' else x\n"
        "return [np.asarray(y, 'float64') for f in (program, nnc.compile(program)) for k in (0, 1, 2)\n"
        "        for y in nnc.tree.leaves(f(*map(number, inputs(k))))]"
    )


def resized(subject: Subject) -> str:
    """A compiled function that gets arrays of other sizes in each call, as it does while a language model generates."""
    others = [inputs_source(program, f"inputs_{i}") for i, program in enumerate(subject.resized)]
    calls = [f"f(*inputs_{i}())" for i in range(len(others))]
    return "\n".join(
        [*others, "f = nnc.compile(program)", f"return [f(*inputs()), {', '.join(calls)}, f(*inputs(1)), {calls[0]}]"]
    )


def in_json(subject: Subject) -> str:
    """The graph goes through its stored form. It knows no weak values: these are compared in the dtype that they show."""
    return (
        "graph = nnc.make_graph(program)(*inputs())\n"
        "found = nnc.tree.leaves(nnc.graph.from_json(nnc.graph.to_json(graph))(*inputs()))\n"
        "known = nnc.tree.leaves(program(*inputs()))\n"
        "return [y.astype(nnc.asarray(x).dtype) if getattr(x, 'weak', True) else y for x, y in zip(known, found)]"
    )


def _has_arrays(subject: Subject) -> bool:
    """Whether there is anything to stack: rows of an array of weak numbers are not weak."""
    return any(not x.is_number for x in subject.program.inputs)


def mapped(wrap: str) -> Callable[[Subject], str]:
    """The rows of some inputs are mapped."""

    def source(subject: Subject) -> str:
        inputs = subject.program.inputs
        chosen = [not x.is_number and x.seed % 3 != 0 for x in inputs]
        axes = tuple(
            0 if (y if any(chosen) else not x.is_number) else None for x, y in zip(inputs, chosen, strict=True)
        )
        return (
            f"axes = {axes}\n"
            "rows = [inputs(k) for k in (0, 1, 2)]\n"
            "xs = [nnp.stack(x) if axis == 0 else x[0] for x, axis in zip(zip(*rows), axes)]\n"
            f"return {wrap.format(f='nnc.vmap(program, in_axes=axes)')}(*xs)"
        )

    return source


def scanned(subject: Subject) -> str:
    """The program is the body of a loop."""
    places = [i for i, x in enumerate(subject.program.inputs) if not x.is_number]
    args = [f"row[{places.index(i)}]" if i in places else f"all[{i}]" for i in range(len(subject.program.inputs))]
    return (
        f"all = inputs()\nxs = [nnp.stack([inputs(k)[i] for k in (0, 1, 2)]) for i in {places}]\n"
        f"return nnc.compile(lambda xs: nnc.scan(lambda i, row: (i + 1, program({', '.join(args)})), 0, xs))(xs)"
    )


def smooth(subject: Subject) -> str:
    """The program as a function of its floats, with its floats as results; and their values."""
    floats, results = subject.floats, subject.smooth_results
    args = ", ".join(
        f"xs[{floats.index(i)}]" if i in floats else f"all[{i}]" for i in range(len(subject.program.inputs))
    )
    return (
        f"all = inputs()\nfloats = [all[i] for i in {floats}]\n"
        f"def smooth(*xs):\n    ys = program({args})\n    return tuple([ys[i] for i in {results}])\n"
    )


PULLED = "def pulled(*xs):\n    ys, pull = nnc.vjp(smooth, *xs)\n    return ys, pull(tuple([wave(y) for y in ys]))\n"
PUSHED = "def pushed(*xs):\n    return nnc.jvp(smooth, xs, tuple([wave(x) for x in xs]))\n"
TWICE = "return [f(*floats) for _ in range(3)]"


NUDGED = "floats = [x + 0.0123 * (i + 1) * wave(x) for i, x in enumerate(floats)]  # where no two values are equal\n"


PLACES = "places = (0, 1, 2, 0, 1)  # more calls than it takes until a program is captured as a graph\n"
THERE = _says(PLACES + "return [program(*inputs(k)) for k in places]")


def placed(device: str, options: str = "") -> Callable[[Subject], str]:
    """Compiled for a device."""
    return _says(
        f"{PLACES}f = nnc.compile(program, device='{device}'{options})\nreturn [f(*inputs(k)) for k in places]"
    )


def eager_on(device: str) -> Callable[[Subject], str]:
    """Eagerly, on arrays of a device."""
    return _says(
        f"{PLACES}with nnc.default_device('{device}'):\n"
        f"    put = lambda x: x if isinstance(x, (int, float)) else nnc.device_put(x, '{device}')\n"
        "    return [program(*map(put, inputs(k))) for k in places]"
    )


def derived_on(device: str) -> Callable[[Subject], str]:
    """A derivative, compiled for a device."""
    return derived(
        PULLED,
        f"floats = nnc.device_put(floats, '{device}')\nf = nnc.compile(pulled, device='{device}')\n"
        "return [f(*floats) for _ in range(4)]",
    )


FOUR_TIMES = "return [pulled(*floats) for _ in range(4)]"
PRINTED = "f = nnc.compile(program, device='ptx:0')\nreturn [f(*inputs(k)) for k in (0, 1)]"
DERIVED_PRINTED = "f = nnc.compile(pulled, device='ptx:0')\nreturn f(*nnc.device_put(floats, 'ptx:0'))"


def derived(functions: str, run: str) -> Callable[[Subject], str]:
    """A derivative of the program."""
    return lambda subject: smooth(subject) + functions + run


def _smooth(subject: Subject) -> bool:
    return subject.differentiable


def _has_gpu(subject: Subject) -> bool:
    """Whether there is a GPU, and no infinite weight of a convolution, which makes NaN of zeros in columns (docs/devices.md)."""
    if "cuda:0" not in nnc.devices():
        return False
    meets_zeros = subject.specials and any(node.command.name.startswith("conv") for node in subject.graph.walk())
    return not meets_zeros


def _smooth_on_gpu(subject: Subject) -> bool:
    return subject.differentiable and _has_gpu(subject)


def _finite(subject: Subject) -> bool:
    return subject.differentiable and not subject.specials  # else 0 · NaN or a derivative that is known to be 0 decides


def _takes_weak(subject: Subject) -> bool:
    """Whether weak floats may take the place of all floats: commands want dtypes that are equal, and so do loops and branches."""
    floats = {x.dtype for x in subject.program.inputs if dtypes.is_inexact(dtypes.BY_NAME[x.dtype]) and not x.is_number}
    plain = not any(word in call for call in subject.program.calls() for word in ("command(", "nnc."))
    return floats == {"float32"} and plain and not any(step.blocks for step in subject.program.body.steps)


def _takes_numbers(subject: Subject) -> bool:
    """Whether numbers may take the place of weak arrays, which have fewer bits in memory: commands want dtypes that are equal."""
    has_numbers = any(x.kind == "number" for x in subject.program.inputs)
    return has_numbers and not any("command(" in call for call in subject.program.calls())


_FORMULA = re.compile(r"(nnp|nn|nnc\.scipy\.special)\.(?!.*(array|full|space|spacing|nextafter|like))|\{0\} [-+*/]+ ")


def _has_digits(subject: Subject) -> bool:
    """Whether float64 arrays may take the place of numbers: these meet no other dtypes, which make float32 of them, and no new
    arrays are made of them.
    """
    inputs, steps = subject.program.inputs, subject.program.body.steps
    numbers = any(x.is_number and x.dtype != "int64" for x in inputs)
    if not numbers or not all(_FORMULA.match(step.call) and not step.settings for step in steps):
        return False
    made = {symbol.spec.dtype for node in subject.graph.walk() for symbol in node.outputs}
    arrays = {x.dtype for x in inputs if not x.is_number}
    return arrays <= {"float64"} and made <= {dtypes.bool_, dtypes.float32, dtypes.float64}


def _few(subject: Subject) -> bool:
    return subject.differentiable and subject.small and not subject.specials and not subject.has_rules


def _exact(subject: Subject) -> bool:
    # a step of a difference is far larger; a rule is not the values' derivative
    if subject.denormals or subject.has_rules:
        return False
    return subject.differentiable and subject.precise and not subject.specials and not subject.surrogates


EFFECTS = (
    "seen.clear()\nf = nnc.compile(program)\nfound = [f(*inputs(k)) for k in (0, 1, 2, 0)]\nreturn found, list(seen)"
)
DYNAMIC = (
    "graph = nnc.DynamicGraph()\n"
    "found = []\n"
    "for _ in range(3):\n"
    "    xs = [graph.variable(x) for x in floats]\n"
    "    ys = smooth(*xs)\n"
    "    live = [y for y in ys if hasattr(y, 'grad') and any(graph.depends(y, xs))]\n"
    "    if live:\n"
    "        graph.backward(live, [wave(y) for y in live])\n"
    "    grads = [nnp.zeros_like(x) if x.grad is None else x.grad for x in xs]\n"
    "    found.append(([np.asarray(y) for y in ys], [np.asarray(g) for g in grads]))\n"
    "return found"
)
HOT = "with patch('nnc.trace.dynamic.routine.ENOUGH', 1e-9):  # routines are compiled at once\n" + indent(
    DYNAMIC, "    "
)
SECOND = "return nnc.jvp(lambda *xs: pulled(*xs)[1], tuple(floats), tuple([wave(x) for x in floats]))"
SUMS = 1e-14  # of a few float64
# of central differences with steps of 1e-5 in float64: 1e-10 of the step, and 1e-11 of rounding with a margin
DIFFERENCES = 1e-6
STEPS = (
    ByDifferences(),
    ByDifferences(2e-5),
    ByDifferences(1e-5, 1.0, 0.0),
    ByDifferences(1e-5, 0.0, 1.0),
    ByDifferences(1e-7),
)

MODES = (
    Mode("eager", _says("f = program\n" + CALLED)),
    Mode("compiled", compiled()),
    Mode("unspecialised", unspecialised, _says("return 2 * [program(*inputs(k)) for k in (0, 1, 2, 0)]")),
    Mode("interpreted", interpreted),
    Mode("guard", guarded, ONCE_EACH),
    Mode("numbers", _says(NUMBERS), ONCE_EACH, applies=_takes_numbers),
    Mode("streams", compiled(", streams=3")),
    Mode("contract", compiled(", contract=True")),
    Mode("flushed", compiled(", flush_denormals=True"), flushes=True),
    Mode("not flushed", compiled(", flush_denormals=False"), flushes=False),
    Mode("donated", donated, applies=lambda subject: bool(subject.program.inputs)),
    Mode("budget", tight, ONCE),
    Mode("stored", stored),
    Mode("json", in_json, ONCE, applies=lambda subject: not subject.has_functions),
    Mode("weak", weakened("x.astype('float64').as_weak()"), weakened("x"), applies=_takes_weak),
    Mode("digits", digits("x"), digits("nnc.asarray(np.asarray(float(x)))"), applies=_has_digits),
    Mode("effects", _says(EFFECTS), _says(EFFECTS), applies=lambda subject: subject.has_effects),
    Mode("sizes", resized, applies=lambda subject: bool(subject.resized)),
    Mode("device", placed("sim:0", ", streams=3"), THERE),
    Mode("eager device", eager_on("sim:0"), THERE),
    Mode("cuda", placed("cuda:0"), THERE, applies=_has_gpu, flushes=False),
    Mode("eager cuda", eager_on("cuda:0"), THERE, applies=_has_gpu, flushes=False),
    Mode("ptx", _says(PRINTED), _says("return [program(*inputs(k)) for k in (0, 1)]"), flushes=False),
    Mode("vmap", mapped("{f}"), applies=_has_arrays),
    Mode("compiled vmap", mapped("nnc.compile({f})"), applies=_has_arrays),
    Mode("scan", scanned, applies=_has_arrays),
    Mode("vjp", derived(PULLED, "f = nnc.compile(pulled)\n" + TWICE), applies=_smooth),
    Mode("eager vjp", derived(PULLED, "f = pulled\n" + TWICE), applies=_smooth),
    Mode("jvp", derived(PUSHED, "f = nnc.compile(pushed)\n" + TWICE), applies=_smooth),
    Mode("device vjp", derived_on("sim:0"), derived(PULLED, FOUR_TIMES), applies=_smooth),
    Mode("cuda vjp", derived_on("cuda:0"), derived(PULLED, FOUR_TIMES), applies=_smooth_on_gpu, flushes=False),
    Mode("ptx vjp", derived(PULLED, DERIVED_PRINTED), derived(PULLED, "return pulled(*floats)"), applies=_smooth, flushes=False),
    Mode("checkpoint", derived(PULLED.replace("smooth,", "nnc.checkpoint(smooth),"), "f = nnc.compile(pulled)\n" + TWICE),
         applies=_smooth),
    Mode("vjp by columns", derived(PULLED, "return pulled(*floats)"), applies=_few, namespaces=(ByColumns(),),
         slack=SUMS),
    Mode("jvp by differences", derived(PUSHED, NUDGED + "return pushed(*floats)"), applies=_exact, namespaces=STEPS,
         slack=DIFFERENCES),
    Mode("second derivative", derived(PULLED, f"def f(*floats):\n    {SECOND}\nf = nnc.compile(f)\nreturn f(*floats)"),
         applies=_finite),
    Mode("second by differences", derived(PULLED, NUDGED + SECOND), applies=_exact, namespaces=STEPS, slack=DIFFERENCES),
    Mode("dynamic graph", derived(PULLED, DYNAMIC), derived(PULLED, "f = pulled\n" + TWICE), applies=_finite),
    Mode("compiled routines", derived(PULLED, HOT), derived(PULLED, "f = pulled\n" + TWICE), applies=_finite),
)  # fmt: skip
# they differentiate nothing
FORWARD = frozenset(mode.name for mode in MODES if mode.applies not in (_smooth, _smooth_on_gpu, _finite, _few, _exact))
