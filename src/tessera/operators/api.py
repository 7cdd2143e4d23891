"""The operators as Python classes: `Add().run_benchmark()`, and a function for every category.

>>> from tessera.operators import Add
>>> add = Add(inputs={"dtype": "float64"}, size="small")
>>> add.inputs["lhs"], add.inputs["dtype"], add.inputs["run_backward"]
((64, 64), 'float64', True)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig, Workers
from tessera.measure.samples import Sampling
from tessera.operators.backends import check_usable, entry, python_of
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS, categories, find
from tessera.operators.draws import Draw
from tessera.operators.operator import Input
from tessera.results.record import Case, Record, record_of_error

SETTINGS = ("dtype", "initializer", "run_backward")
ALSO = {"arithmetic": ("power",)}  # measured with a category that is not its own, as in the MXNet benchmarks


class OperatorBenchmark:
    """One operator, ready to be measured: `run_benchmark()`, then `print_benchmark_results()`.

    `inputs` replaces any of the operator's own shapes and arguments, and `dtype`, `run_backward` (forward and backward
    together, or forward alone) and `initializer` (a `Draw` for all floating-point inputs). Afterwards the attribute of
    that name holds all of them.
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
        given = dict(inputs or {})
        settings = {name: given.pop(name) for name in SETTINGS if name in given}
        self.backend, self.size, self.sampling = backend, size, sampling or Sampling()
        self._given = given
        self.record: Record | None = None
        shaped = definition.inputs(size, given)
        shapes = {name: one.shape for name, one in shaped.items()}
        usual = _drawn(shaped)
        initializer = settings.get("initializer", usual)
        self._initializer = "" if initializer == usual else _expression(initializer)
        differentiates = definition.differentiable and entry(backend).differentiates
        self.inputs: dict[str, Any] = {
            **shapes,
            **definition.attributes_for(shapes, given),
            "initializer": initializer,
            "run_backward": bool(settings.get("run_backward", differentiates)),
            "dtype": str(settings.get("dtype", "float32")),
        }
        self.case  # noqa: B018  (a value that no case can have is refused here)

    @property
    def case(self) -> Case:
        """The case that is measured."""
        (found, *_) = cases(
            [self.operator],
            backend=[self.backend],
            size=[self.size],
            passes=["both" if self.inputs["run_backward"] else "forward"],
            dtype=[self.inputs["dtype"]],
            inputs=self._given,
        )
        params = {name: value for name, value in found.params.items() if name != "fusion"}  # its steps, one by one
        if self._initializer:
            params["initializer"] = self._initializer
        return Case(feature=found.feature, name=found.name, params=params)

    def run_benchmark(self) -> Record:
        """Measure, in a pinned process of its own."""
        with _workers(self.backend) as workers:
            return self.run_on(workers)

    def run_on(self, workers: Workers) -> Record:
        """Measure on workers that are there already."""
        limit = None if self.sampling.iterations else 60 + 20 * self.sampling.budget
        (self.record,) = workers.run("tessera.operators.bench:run_fresh", self.case, self.sampling, time_limit=limit)
        assert self.record is not None
        return self.record

    def print_benchmark_results(self) -> None:
        """Print the result as one line: backend, operator, passes, seconds."""
        if self.record is None:
            raise TesseraError("there are no results yet", do="call run_benchmark() first")
        print(result_line(self.record), flush=True)


def _drawn(inputs: Mapping[str, Input]) -> Draw | dict[str, Draw]:
    """How the floating-point inputs are drawn: all alike, or each in its own way."""
    found = {name: one.draw for name, one in inputs.items() if one.kind == "float"}
    return next(iter(found.values())) if len(set(found.values())) == 1 else found


def _expression(initializer: Any) -> str:
    if not isinstance(initializer, Draw):
        raise TesseraError("initializer", got=initializer, allowed='a Draw, for example Draw("rng.random(shape)")')
    return initializer.expression


def result_line(record: Record) -> str:
    """A record as one line, `PT_Add_Forward_Time - 0.015201 seconds`.

    >>> from tessera.results.record import Metric
    >>> case = Case(feature="ops", name="inplace_add", params={"backend": "torch", "pass": "forward"})
    >>> result_line(Record(case=case, metrics={"time": Metric(0.003824, "s")}))
    'PT_Inplace_Add_Forward_Time - 0.003824 seconds'
    """
    passes = {"forward": "Forward", "backward": "Backward", "both": "Forward_Backward"}[str(record.case.params["pass"])]
    name = "_".join(part.capitalize() for part in record.case.name.split("_"))
    prefix = entry(str(record.case.params["backend"])).prefix
    return f"{prefix}_{name}_{passes}_Time - {record.metrics['time'].value:.6f} seconds"


def class_names() -> dict[str, str]:
    """Every operator's name by that of its class: `Add`, `Conv2d`, `InplaceAdd`."""
    return {"".join(part.capitalize() for part in name.split("_")): name for name in OPERATORS}


def benchmark_class(name: str) -> type[OperatorBenchmark] | None:
    """The class of this name."""
    operator = class_names().get(name)
    return _class(name, operator) if operator else None


@cache
def _class(name: str, operator: str) -> type[OperatorBenchmark]:
    return type(name, (OperatorBenchmark,), {"operator": operator, "__doc__": f"The operator `{operator}`."})


def runner_names() -> dict[str, str]:
    """Every category by the name of the function that measures it."""
    return {f"run_all_{category}_operations_benchmarks": category for category in categories()}


def category_runner(name: str) -> Callable[..., list[Record]] | None:
    """`run_all_<category>_operations_benchmarks`, which measures and prints a category."""
    category = runner_names().get(name)
    if category is None:
        return None

    def run_all(*, backend: str = "torch", size: str = "medium", sampling: Sampling | None = None) -> list[Record]:
        names = [op.name for op in find(category=[category])]
        return run_operators([*names, *ALSO.get(category, ())], backend, size, sampling)

    run_all.__name__, run_all.__doc__ = name, f"Measure and print every operator of the category {category}."
    return run_all


def run_operators(names: Sequence[str], backend: str, size: str, sampling: Sampling | None = None) -> list[Record]:
    """Measure operators one after the other and print each line as it is known; what is refused says so.

    Gives a record of each, also of those that were refused or failed.
    """
    by_operator = {operator: name for name, operator in class_names().items()}
    records = []
    with _workers(backend) as workers:
        for operator in names:
            benchmark = _class(by_operator[operator], operator)(backend=backend, size=size, sampling=sampling)
            try:
                records.append(benchmark.run_on(workers))
                benchmark.print_benchmark_results()
            except TesseraError as error:
                print(f"{benchmark.operator}: {error}", flush=True)
                records.append(record_of_error(benchmark.case, error))
    return records


def _workers(backend: str) -> Workers:
    """A pinned process in the interpreter that a backend runs in; one that is not installed is refused."""
    check_usable(backend)
    return Workers(LaunchConfig(python=python_of(backend) or LaunchConfig().python))
