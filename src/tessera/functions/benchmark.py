"""The `@benchmark` decorator: it turns a function into a benchmark with axes, and registers it.

The decorated function is either the timed call itself, or an untimed set-up that returns the callable to time:

    @benchmark(size=[64, 1024])
    def sort_list(size):
        data = random.sample(range(size), size)  # set-up, not timed
        return lambda: sorted(data)              # timed

A generator function yields the callable and cleans up after the `yield`.
"""

from __future__ import annotations

import inspect
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from tessera.errors import TesseraError, suggest_similar

FILES_VARIABLE = "TESSERA_BENCHMARKS"  # benchmark files for workers to load, separated by os.pathsep
AXIS_TYPES = (bool, int, float, str)  # allowed types of axis values

_registry: dict[str, Benchmark] = {}
_is_loading = False  # whether a benchmark file is being executed


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A registered benchmark function. `axes` maps each parameter to the values that are measured.

    `file` is the Python file that defines the function, so that a worker process can load it; it is empty for a
    function defined in an interactive session, which can only run in the current process.
    """

    function: Callable[..., Any]
    name: str
    version: str
    axes: Mapping[str, tuple[Any, ...]]
    file: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the decorated function, as if it had no decorator."""
        return self.function(*args, **kwargs)

    @contextmanager
    def prepare(self, params: Mapping[str, Any]) -> Iterator[Callable[[], Any]]:
        """Run the set-up for one combination of axis values, yield the callable to time, and clean up afterwards."""
        if inspect.isgeneratorfunction(self.function):
            generator = self.function(**params)
            timed = next(generator, None)
            if not callable(timed):
                raise TesseraError(f"benchmark {self.name} must yield a callable", got=type(timed).__name__)
            try:
                yield timed
            finally:
                next(generator, None)
            return
        result = self.function(**params)
        if callable(result):
            yield result
        else:
            function = self.function
            yield lambda: function(**params)


@overload
def benchmark(function: Callable[..., Any], /) -> Benchmark: ...


@overload
def benchmark(
    *, name: str = "", version: str = "1", **axes: Sequence[Any]
) -> Callable[[Callable[..., Any]], Benchmark]: ...


def benchmark(
    function: Callable[..., Any] | None = None, /, *, name: str = "", version: str = "1", **axes: Sequence[Any]
) -> Benchmark | Callable[[Callable[..., Any]], Benchmark]:
    """Register a function as a benchmark; each keyword is an axis with the values to measure.

    Change `version` when the measured work changes: records of different versions are not
    compared. Use the result with `tessera.run`, or run the file with `tessera run FILE.py`.

    >>> @benchmark(size=[10, 100])
    ... def sum_range(size):
    ...     return sum(range(size))
    >>> sum_range.name, dict(sum_range.axes)
    ('sum_range', {'size': (10, 100)})
    """

    def register(function: Callable[..., Any]) -> Benchmark:
        registered = Benchmark(
            function=function,
            name=name or function.__name__,
            version=version,
            axes={axis: _check_values(axis, values) for axis, values in axes.items()},
            file=_find_file(function),
        )
        _check_signature(registered)
        _registry[registered.name] = registered
        return registered

    return register if function is None else register(function)


def _check_values(axis: str, values: Sequence[Any]) -> tuple[Any, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise TesseraError(f"axis {axis} requires a list of values", got=values)
    if not values:
        raise TesseraError(f"axis {axis} has no values", do="give at least one value")
    for value in values:
        if not isinstance(value, AXIS_TYPES):
            raise TesseraError(
                f"axis {axis} has a value of an unsupported type", got=value, allowed="numbers, strings, True and False"
            )
    return tuple(values)


def _check_signature(registered: Benchmark) -> None:
    """Raise an error for an axis without a parameter, or a parameter with neither axis nor default."""
    parameters = inspect.signature(registered.function).parameters
    if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        for axis in registered.axes:
            if axis not in parameters:
                raise TesseraError(f"{registered.name}() has no parameter for this axis", got=axis, allowed=parameters)
    for parameter in parameters.values():
        is_variadic = parameter.kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        if parameter.default is inspect.Parameter.empty and parameter.name not in registered.axes and not is_variadic:
            raise TesseraError(
                f"{registered.name}(): parameter {parameter.name} has no axis and no default",
                do=f"write @benchmark({parameter.name}=[...])",
            )


def _find_file(function: Callable[..., Any]) -> str:
    """Return the file that defines a function; empty in an interactive session."""
    file = function.__code__.co_filename if hasattr(function, "__code__") else ""
    return os.path.abspath(file) if file and Path(file).is_file() else ""


def get_benchmark(name: str) -> Benchmark:
    """Return a registered benchmark; in a worker, first load the files that the environment names."""
    if name not in _registry:
        for path in filter(None, os.environ.get(FILES_VARIABLE, "").split(os.pathsep)):
            load_benchmarks(path)
    if name not in _registry:
        raise TesseraError("unknown benchmark", got=name, allowed=_registry, do=suggest_similar(name, _registry))
    return _registry[name]


def load_benchmarks(path: str) -> list[Benchmark]:
    """Execute a Python file and return the benchmarks that it registers."""
    global _is_loading
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:  # as in `python FILE`: the file may import modules in its directory
        sys.path.insert(0, folder)
    before = dict(_registry)
    _registry.clear()
    was_loading, _is_loading = _is_loading, True
    loaded: list[Benchmark] = []
    try:
        runpy.run_path(path, run_name="tessera_benchmarks")
        loaded = list(_registry.values())
    except TesseraError:
        raise
    except OSError as error:
        raise TesseraError("cannot read the benchmark file", got=path, do=str(error)) from None
    except (Exception, SystemExit) as error:
        raise TesseraError(f"the benchmark file failed: {type(error).__name__}: {error}", got=path) from None
    finally:
        _is_loading = was_loading
        _registry.clear()
        _registry.update(before | {entry.name: entry for entry in loaded})
    if not loaded:
        raise TesseraError("the file defines no benchmarks", got=path, do="decorate functions with @tessera.benchmark")
    return loaded


def share_with_workers(benchmarks: Sequence[Benchmark]) -> None:
    """Name the files of the benchmarks in the environment, so that workers started later load them."""
    share_files_with_workers([entry.file for entry in benchmarks if entry.file])


def share_files_with_workers(files: Sequence[str]) -> None:
    """Name benchmark files in the environment, so that workers started later load them."""
    os.environ[FILES_VARIABLE] = os.pathsep.join(dict.fromkeys(os.path.abspath(file) for file in files))


def check_not_loading() -> None:
    """Raise an error if a benchmark file is being loaded: a run that the file starts would restart in each worker."""
    if _is_loading:
        raise TesseraError(
            "tessera.run() was called while the benchmark file was being loaded",
            do='put the call under `if __name__ == "__main__":`',
        )
