"""Every operator as a Python class (`Add().run_benchmark()`), and a function for every category.

>>> from tessera.operators import Add
>>> add = Add(inputs={"dtype": "float64"}, size="small")
>>> add.inputs["lhs"], add.inputs["dtype"], add.inputs["run_backward"]
((64, 64), 'float64', True)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig, Workers
from tessera.measure.samples import Sampling
from tessera.operators.backends import check_usable, find_own_python, get_backend_entry
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS, find_operators, group_by_category
from tessera.operators.draws import Draw
from tessera.operators.operator import Input
from tessera.results.record import Case, Record, make_error_record

SETTING_NAMES = ("dtype", "initializer", "run_backward")
# category -> operators of other categories that its runner also measures, as in the MXNet benchmarks
EXTRA_OPERATORS = {"arithmetic": ("power",)}


class OperatorBenchmark:
    """The benchmark of one operator: call `run_benchmark()`, then `print_benchmark_results()`.

    The argument `inputs` replaces shapes and arguments of the operator by name, and also takes `dtype`, `run_backward`
    (forward and backward, or forward only) and `initializer` for all floating-point inputs: a `Draw`, or a function of
    an importable module that is called with the shape. The attribute `inputs` holds all of them, defaults included.
    """

    operator: ClassVar[str]

    def __init__(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        backend: str = "torch",
        size: str = "medium",
        sampling: Sampling | None = None,
    ) -> None:
        definition = OPERATORS[self.operator]
        overrides = dict(inputs or {})
        settings = {name: overrides.pop(name) for name in SETTING_NAMES if name in overrides}
        self.backend, self.size, self.sampling = backend, size, sampling or Sampling()
        self._overrides = overrides
        self.record: Record | None = None
        resolved = definition.get_inputs(size, overrides)
        shapes = {name: entry.shape for name, entry in resolved.items()}
        default_draw = _get_initializer(resolved)
        initializer = settings.get("initializer", default_draw)
        self._initializer = "" if initializer == default_draw else _get_draw_expression(initializer)
        differentiates = definition.differentiable and get_backend_entry(backend).differentiates
        self.inputs: dict[str, Any] = {
            **shapes,
            **definition.get_attributes(shapes, overrides),
            "initializer": initializer,
            "run_backward": bool(settings.get("run_backward", differentiates)),
            "dtype": str(settings.get("dtype", "float32")),
        }
        self.case  # noqa: B018  (raises for invalid values)

    @property
    def case(self) -> Case:
        """The case that is measured."""
        (case, *_) = cases(
            [self.operator],
            backend=[self.backend],
            size=[self.size],
            passes=["both" if self.inputs["run_backward"] else "forward"],
            dtype=[self.inputs["dtype"]],
            inputs=self._overrides,
        )
        params = {name: value for name, value in case.params.items() if name != "fusion"}
        if self._initializer:
            params["initializer"] = self._initializer
        return Case(feature=case.feature, name=case.name, params=params)

    def run_benchmark(self) -> Record:
        """Measure the operator in a separate pinned process and return the record."""
        with _open_workers(self.backend) as workers:
            return self.run_on(workers)

    def run_on(self, workers: Workers) -> Record:
        """Measure the operator on workers that are already running and return the record."""
        limit = None if self.sampling.iterations else 60 + 20 * self.sampling.budget
        (self.record,) = workers.run("tessera.operators.bench:run_fresh", self.case, self.sampling, time_limit=limit)
        assert self.record is not None
        return self.record

    def print_benchmark_results(self) -> None:
        """Print the result as one line: backend, operator, passes, seconds."""
        if self.record is None:
            raise TesseraError("the benchmark has no results yet", do="call run_benchmark() first")
        print(format_result(self.record), flush=True)


def _get_initializer(inputs: Mapping[str, Input]) -> Draw | dict[str, Draw]:
    """Return the distribution of the floating-point inputs: one `Draw` if all share it, else a dict by input name."""
    draws = {name: entry.draw for name, entry in inputs.items() if entry.kind == "float"}
    return next(iter(draws.values())) if len(set(draws.values())) == 1 else draws


def _get_draw_expression(initializer: Any) -> str:
    """Return the expression of an initializer: of a `Draw`, or a call of a function that workers can import."""
    if isinstance(initializer, Draw):
        return initializer.expression
    module, name = getattr(initializer, "__module__", None), getattr(initializer, "__qualname__", "")
    importable = callable(initializer) and module and module != "__main__" and "<" not in name
    if not importable or not _returns_shape(initializer, (2, 3)):
        raise TesseraError(
            "invalid initializer",
            got=initializer,
            allowed='a Draw, for example Draw("rng.random(shape)"), or a function of a module, called with the shape',
        )
    return f"np.asarray(__import__('importlib').import_module({module!r}).{name}(shape))"


def _returns_shape(initializer: Callable[[tuple[int, ...]], Any], shape: tuple[int, ...]) -> bool:
    """Return whether a function returns an array of the shape that it is called with."""
    import numpy as np

    try:
        return np.shape(np.asarray(initializer(shape))) == shape
    except Exception:
        return False


def format_result(record: Record) -> str:
    """Format a record as one line, `PT_Add_Forward_Time - 0.015201 seconds`.

    >>> from tessera.results.record import Metric
    >>> case = Case(feature="ops", name="inplace_add", params={"backend": "torch", "pass": "forward"})
    >>> format_result(Record(case=case, metrics={"time": Metric(0.003824, "s")}))
    'PT_Inplace_Add_Forward_Time - 0.003824 seconds'

    A time below 0.1 ms has four significant digits.

    >>> format_result(Record(case=case, metrics={"time": Metric(1.6034e-6, "s")}))
    'PT_Inplace_Add_Forward_Time - 0.000001603 seconds'
    """
    passes = {"forward": "Forward", "backward": "Backward", "both": "Forward_Backward"}[str(record.case.params["pass"])]
    name = "_".join(part.capitalize() for part in record.case.name.split("_"))
    prefix = get_backend_entry(str(record.case.params["backend"])).prefix
    seconds = record.metrics["time"].value
    digits = 6 if seconds >= 1e-4 or seconds <= 0 else min(15, 3 - math.floor(math.log10(seconds)))
    return f"{prefix}_{name}_{passes}_Time - {seconds:.{digits}f} seconds"


def list_class_names() -> dict[str, str]:
    """Map class names (`Add`, `Conv2d`, `InplaceAdd`) to operator names."""
    return {"".join(part.capitalize() for part in name.split("_")): name for name in OPERATORS}


def get_benchmark_class(name: str) -> type[OperatorBenchmark] | None:
    """Return the benchmark class of this name, or None."""
    operator = list_class_names().get(name)
    return _make_benchmark_class(name, operator) if operator else None


@cache
def _make_benchmark_class(name: str, operator: str) -> type[OperatorBenchmark]:
    return type(name, (OperatorBenchmark,), {"operator": operator, "__doc__": f"The operator `{operator}`."})


def list_runner_names() -> dict[str, str]:
    """Map function names (`run_all_<category>_operations_benchmarks`) to categories."""
    return {f"run_all_{category}_operations_benchmarks": category for category in group_by_category()}


def get_category_runner(name: str) -> Callable[..., list[Record]] | None:
    """Return the function `run_all_<category>_operations_benchmarks` of this name, or None."""
    category = list_runner_names().get(name)
    if category is None:
        return None

    def run_category(*, backend: str = "torch", size: str = "medium", sampling: Sampling | None = None) -> list[Record]:
        names = [op.name for op in find_operators(category=[category])]
        return run_operators([*names, *EXTRA_OPERATORS.get(category, ())], backend, size, sampling)

    run_category.__name__, run_category.__doc__ = name, f"Measure and print every operator of the category {category}."
    return run_category


def run_operators(names: Sequence[str], backend: str, size: str, sampling: Sampling | None = None) -> list[Record]:
    """Measure operators one after the other, and print one line per operator when it is finished.

    Returns one record per operator, including refused and failed operators.
    """
    by_operator = {operator: name for name, operator in list_class_names().items()}
    records = []
    with _open_workers(backend) as workers:
        for operator in names:
            benchmark = _make_benchmark_class(by_operator[operator], operator)(
                backend=backend, size=size, sampling=sampling
            )
            try:
                records.append(benchmark.run_on(workers))
                benchmark.print_benchmark_results()
            except TesseraError as error:
                print(f"{benchmark.operator}: {error}", flush=True)
                records.append(make_error_record(benchmark.case, error))
    return records


def _open_workers(backend: str) -> Workers:
    """Open a pinned worker in the interpreter of a backend; raise an error if the backend is not installed."""
    check_usable(backend)
    return Workers(LaunchConfig(python=find_own_python(backend) or LaunchConfig().python))
