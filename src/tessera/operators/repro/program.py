"""Builder of the program that repeats a record; records that cannot be repeated are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tessera.errors import TesseraError, get_first_line
from tessera.measure.allocator import ALLOCATORS, get_allocator_env
from tessera.operators.backends import get_backend_entry
from tessera.operators.draws import is_plain_draw
from tessera.operators.repro import jax_program, mxnet_program, torch_program
from tessera.operators.repro.program_text import ProgramText
from tessera.results.record import Case, Record
from tessera.validation import check_fields, check_value

PASSES = ("forward", "backward", "both")

PROGRAM_TEMPLATE = '''\
"""Repeats {key}

Measured: {seconds} seconds (median) with {versions}.
"""

import os
import statistics
import sys
import time

SETTINGS = {settings}
if __name__ == "__main__" and any(os.environ.get(name) != value for name, value in SETTINGS.items()):
    if os.path.isfile(sys.argv[0]):
        os.environ.update(SETTINGS)  # libraries read them at start, so start this program again
        os.execv(sys.executable, [sys.executable, *sys.argv])
    print("this program is not a file, so these settings of the record are not applied:", SETTINGS, file=sys.stderr)

{imports}

{body}


def time_calls(function):
    """Time single calls for one second; return their median and number."""
    function()
    function()
    times = []
    until = time.perf_counter() + 1.0
    while time.perf_counter() < until or len(times) < 3:
{before}        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return statistics.median(times), len(times)


if __name__ == "__main__":
    for function in [{calls}]:
        seconds, count = time_calls(function)
        print(f"{{seconds:.3e}} seconds (median of {{count}}), {{function.__name__}}")
'''
FLUSH_CACHES_SOURCE = '''\
filler = np.zeros(256 << 20, dtype=np.uint8)


def before():
    """Flush the CPU caches."""
    np.add(filler, 1, out=filler)'''
PROGRAM_WRITERS: dict[str, Callable[[Case, int], ProgramText]] = {
    "torch": torch_program.write_torch,
    "compile": torch_program.write_torch,
    "numpy": torch_program.write_numpy,
    "jax": jax_program.write_jax,
    "mxnet": mxnet_program.write_mxnet,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProgramParams:
    """The types of the case parameters that are written into a program."""

    backend: str
    seed: int
    size: str = ""
    dtype: str = ""
    skew: str = ""
    initializer: str = ""
    inputs: Mapping[str, Any] | None = None


def write_program(record: Record, *, allow_initializer: bool = False) -> str:
    """Return a Python program that repeats the case of a record.

    A record may come from another person. Its values are written as literals, and names only if they are known; an
    initializer, which is an expression, is written only if it draws numbers, or with `allow_initializer`.
    """
    check_fields(_ProgramParams, record.case.params, "tessera repro does not support this record")
    if record.case.params.get("pass") not in PASSES:
        raise TesseraError("unknown pass of the record", got=record.case.params.get("pass"), allowed=PASSES)
    initializer = record.case.params.get("initializer")
    if initializer and not allow_initializer and not is_plain_draw(initializer):
        raise TesseraError(
            "the initializer of the record is code that may do more than draw numbers",
            got=initializer,
            do="add --allow-initializer if you trust the record",
        )
    try:
        text = _format_program(record)
        compile(text, "program", "exec")
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError, SyntaxError, RecursionError) as error:
        raise TesseraError(
            f"the record cannot be repeated, its case is invalid: {get_first_line(error)}", got=record.case.key
        ) from None
    return text


def _escape_docstring(text: str) -> str:
    """Return text as one line that cannot end a docstring.

    >>> print(_escape_docstring('a "word"'))
    a \\"word\\"
    """
    return text.encode("unicode_escape").decode("ascii").replace('"', '\\"')


def _format_program(record: Record) -> str:
    case, environment = record.case, record.environment
    if "device" in case.params:
        raise TesseraError("programs are written for the CPU only", got=f"device={case.params['device']}")
    threads, libraries = environment.get("threads", 1), environment.get("libraries", {})
    check_value(int, threads, "invalid environment: threads")
    check_value(Mapping[str, Any], libraries, "invalid environment: libraries")
    text = _find_writer(case)(case, threads)
    if case.params.get("cache") == "cold":
        text = replace(text, body=f"{text.body}\n\n\n{FLUSH_CACHES_SOURCE}", before=True)
    named = str(environment.get("allocator", "steady"))
    allocator = get_allocator_env(named) if named in ALLOCATORS else {}  # only known allocators can be repeated
    time = record.metrics.get("time")
    return PROGRAM_TEMPLATE.format(
        key=_escape_docstring(case.key),
        seconds=f"{time.value:.3e}" if time else "no",
        versions=_escape_docstring(
            ", ".join(f"{name} {libraries[name]}" for name in _list_libraries(case) if name in libraries) or "?"
        ),
        settings={"OMP_NUM_THREADS": str(threads), **allocator, **text.settings},
        imports=text.imports,
        body=text.body,
        before="        before()\n" if text.before else "",
        calls=", ".join(text.calls),
    )


def _find_writer(case: Case) -> Callable[[Case, int], ProgramText]:
    """Return the function that writes the program of a case; raise an error with the reason if there is none."""
    backend, source = str(case.params.get("backend")), case.params.get("source")
    why = ""
    if source == "model":
        from tessera.operators.repro import model_program
        from tessera.operators.sources.model import is_whole_model

        if not is_whole_model(case):
            return model_program.write_model_call
        why = "the case is a whole model, not one of its calls"
    elif source == "opinfo":
        why = "its sample comes from torch's own tests"
    elif case.params.get("fusion"):
        return torch_program.write_fused
    elif backend not in PROGRAM_WRITERS:
        why = f"Tessera builds the graph that {get_backend_entry(backend).title} runs"
    if why:
        raise TesseraError(f"tessera repro does not support this case: {why}", got=case.key)
    return PROGRAM_WRITERS[backend]


def _list_libraries(case: Case) -> tuple[str, ...]:
    return tuple(dict.fromkeys((get_backend_entry(str(case.params["backend"])).package, "numpy")))
