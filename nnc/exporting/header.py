"""The C header of an exported function: C99, which C++ reads, too."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from nnc.exporting.record import Exported, ExportedTensor

_TENSOR = """\
#ifndef NNC_TENSOR
#define NNC_TENSOR
typedef struct {
  const char *path;       /* place in the arguments or in the result */
  const char *dtype;      /* NumPy's name */
  int32_t ndim;
  const int64_t *shape;
  const int64_t *strides; /* bytes */
  int64_t bytes;
} nnc_tensor;
#endif
"""


def print_header(exported: Exported, alignment: int) -> str:
    """Returns the header.

    Args:
        alignment: of the arena and of constants, in bytes.
    """
    name, has_file = exported.name, exported.constants == "file"
    threads = f" on {exported.threads} threads" if exported.threads else ""
    about = [
        f"{name}: compiled by nnc {exported.versions['nnc']} for {exported.target}{threads}.", "",
        *(f"{key}: {value}" for key, value in exported.quantities.items()), "",
        "A call allocates nothing and keeps nothing: calls at the same time have an arena each. Outputs share no memory",
        "with inputs, the arena or each other. 0 is success; any other number is an error, which NAME_error words.",
        "The stack is what a call takes at most, without functions of other libraries.",
        *(["constants is the content of the file NAME.bin, mapped or read, and aligned as the arena is."] if has_file else []),
        *(["It calls LAPACK: link a library with 32-bit integers."] if exported.calls_lapack else []),
        *(["NAME_start makes threads and returns 0, NAME_stop ends them; else loops run alone."] if exported.has_pool else []),
    ]  # fmt: skip
    constants = ", const void *constants" if has_file else ""
    sizes = {
        "INPUTS": len(exported.inputs), "OUTPUTS": len(exported.outputs), "ARENA_BYTES": exported.arena_bytes,
        "ALIGNMENT": alignment, "CODE_BYTES": exported.code_bytes, "CONSTANT_BYTES": exported.constant_bytes,
        "FLOPS": exported.flops,
    }  # fmt: skip
    if exported.stack_bytes is not None:
        sizes["STACK_BYTES"] = exported.stack_bytes
    lines = [
        "/*", *(f" * {line.replace('NAME', name)}".rstrip() for line in about), " */",
        f"#ifndef {name}_H", f"#define {name}_H", "", "#include <stdint.h>", "",
        *(f"#define {name}_{key} {value}" for key, value in sizes.items()), "", _TENSOR,
        *_table(f"{name}_inputs", exported.inputs), *_table(f"{name}_outputs", exported.outputs),
        "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
        f"int {name}(const void *const *inputs, void *const *outputs, void *arena{constants});",
        f"const char *{name}_error(int error);",
        *([f"int {name}_start(void);", f"void {name}_stop(void);"] if exported.has_pool else []),
        "", "#ifdef __cplusplus", "}", "#endif", f"#endif /* {name}_H */",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _table(function: str, tensors: Sequence[ExportedTensor]) -> Iterator[str]:
    """A function that returns the descriptors of all inputs, or all outputs."""
    yield f"static inline const nnc_tensor *{function}(void) {{"
    rows = []
    for i, tensor in enumerate(tensors):
        yield f"  /* {i}: {_quiet(tensor.path or 'the result')} {tensor.dtype}{list(tensor.shape)} */"
        numbers = ["(const int64_t *)0, (const int64_t *)0"]
        if tensor.shape:
            for key, values in (("shape", tensor.shape), ("strides", tensor.strides)):
                yield f"  static const int64_t {key}{i}[] = {{{', '.join(map(str, values))}}};"
            numbers = [f"shape{i}, strides{i}"]
        path = json.dumps(tensor.path).replace("??", '?""?')  # no trigraphs
        rows.append(f'    {{{path}, "{tensor.dtype}", {len(tensor.shape)}, {numbers[0]}, {tensor.bytes}}},')
    if rows:
        yield from ("  static const nnc_tensor table[] = {", *rows, "  };", "  return table;")
    else:
        yield "  return (const nnc_tensor *)0;"
    yield "}\n"


def _quiet(text: str) -> str:
    """Returns a text that ends no comment."""
    return text.replace("*/", "* /").replace("/*", "/ *")
