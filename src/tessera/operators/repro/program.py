"""The frame of a program, and which records one can be written for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tessera.errors import TesseraError
from tessera.measure.allocator import ALLOCATORS, allocator_env
from tessera.operators.backends import entry
from tessera.operators.repro import jax_program, mxnet_program, torch_program
from tessera.operators.repro.written import Written
from tessera.results.record import Case, Record

PROGRAM = '''\
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
        os.environ.update(SETTINGS)  # they act on a process that is started with them
        os.execv(sys.executable, [sys.executable, *sys.argv])
    print("not a file, so these settings of the record are not in force:", SETTINGS, file=sys.stderr)

{imports}

{body}


def timed(function):
    """The median of single calls, taken for a second, and how many they were."""
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
        seconds, count = timed(function)
        print(f"{{seconds:.3e}} seconds (median of {{count}}), {{function.__name__}}")
'''
COLD = '''\
filler = np.zeros(256 << 20, dtype=np.uint8)


def before():
    """Drive everything else out of the caches."""
    np.add(filler, 1, out=filler)'''
WRITERS: dict[str, Callable[[Case, int], Written]] = {
    "torch": torch_program.write,
    "compile": torch_program.write,
    "numpy": torch_program.write_numpy,
    "jax": jax_program.write,
    "mxnet": mxnet_program.write,
}


def program(record: Record) -> str:
    """The Python program that repeats a record's case."""
    case, seen = record.case, record.environment
    threads, libraries = int(seen.get("threads", 1)), seen.get("libraries", {})
    written = _writer(case)(case, threads)
    if case.params.get("cache") == "cold":
        written = replace(written, body=f"{written.body}\n\n\n{COLD}", before=True)
    named = str(seen.get("allocator", "steady"))
    allocator = allocator_env(named) if named in ALLOCATORS else {}  # one that has no name cannot be repeated
    time = record.metrics.get("time")
    return PROGRAM.format(
        key=case.key,
        seconds=f"{time.value:.3e}" if time else "no",
        versions=", ".join(f"{name} {libraries[name]}" for name in _libraries(case) if name in libraries) or "?",
        settings={"OMP_NUM_THREADS": str(threads), **allocator, **written.settings},
        imports=written.imports,
        body=written.body,
        before="        before()\n" if written.before else "",
        calls=", ".join(written.calls),
    )


def _writer(case: Case) -> Callable[[Case, int], Written]:
    """Who writes the program of a case; one that nobody can write is refused with the reason."""
    backend, source = str(case.params.get("backend")), case.params.get("source")
    why = ""
    if source == "model":
        from tessera.operators.repro import model_program
        from tessera.operators.sources.model import is_whole

        if not is_whole(case):
            return model_program.write
        why = "it is a whole model, not one of its calls"
    elif source == "opinfo":
        why = "torch's own tests make its samples"
    elif case.params.get("fusion"):
        return torch_program.write_fused
    elif backend not in WRITERS:
        why = f"Tessera builds the graph that {entry(backend).title} runs"
    if why:
        raise TesseraError(f"no program can be written for this case: {why}", got=case.key)
    return WRITERS[backend]


def _libraries(case: Case) -> tuple[str, ...]:
    return tuple(dict.fromkeys((entry(str(case.params["backend"])).package, "numpy")))
