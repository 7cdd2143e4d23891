"""The operators as Python classes: `Add().run_benchmark()`, and a function for every category.

>>> from tessera.operators import Add
>>> add = Add(inputs={"dtype": "float64"}, size="small")
>>> add.inputs["lhs"], add.inputs["dtype"], add.inputs["run_backward"]
((64, 64), 'float64', True)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig, Workers
from tessera.measure.samples import Sampling
from tessera.operators.backends import entry, interpreter
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS, categories, find
from tessera.operators.draws import Draw, normal
from tessera.results.record import Case, Record

SETTINGS = ("dtype", "initializer", "run_backward")


class OperatorBenchmark:
    """One operator, ready to be measured: `run_benchmark()`, then `print_benchmark_results()`.

    `inputs` replaces any of the operator's own shapes and arguments, and `dtype`, `run_backward` (forward and backward
    together, or forward alone) and `initializer` (a `Draw` for all floating-point inputs).
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
        initializer = settings.get("initializer", normal)
        if not isinstance(initializer, Draw):
            raise TesseraError("initializer", got=initializer, allowed='a Draw, for example Draw("rng.random(shape)")')
        self._drawn = "initializer" in settings
        self.inputs: dict[str, Any] = {
            **shapes,
            **definition.attributes_for(shapes, given),
            "initializer": initializer,
            "run_backward": bool(settings.get("run_backward", definition.differentiable)),
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
        if self._drawn:
            params["initializer"] = self.inputs["initializer"].expression
        return Case(feature=found.feature, name=found.name, params=params)

    def run_benchmark(self) -> Record:
        """Measure, in a pinned process of its own."""
        with Workers(LaunchConfig(python=interpreter(self.case) or LaunchConfig().python)) as workers:
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
        print(result_line(self.record))


def result_line(record: Record) -> str:
    """A record in the seed's form.

    >>> from tessera.results.record import Metric
    >>> case = Case(feature="ops", name="inplace_add", params={"backend": "torch", "pass": "forward"})
    >>> result_line(Record(case=case, metrics={"time": Metric(0.003824, "s")}))
    'PT_Inplace_Add_Forward_Time - 0.003824 seconds'
    """
    passes = {"forward": "Forward", "backward": "Backward", "both": "Forward_Backward"}[str(record.case.params["pass"])]
    name = "_".join(part.capitalize() for part in record.case.name.split("_"))
    prefix = entry(str(record.case.params["backend"])).prefix
    return f"{prefix}_{name}_{passes}_Time - {record.metrics['time'].value:.6f} seconds"


def benchmark_class(name: str) -> type[OperatorBenchmark] | None:
    """The class of an operator by its name in capitals: `Add`, `Conv2d`, `InplaceAdd`."""
    for operator in OPERATORS:
        if name == _class_name(operator):
            return _class(operator)
    return None


def _class_name(operator: str) -> str:
    return "".join(part.capitalize() for part in operator.split("_"))


def _class(operator: str) -> type[OperatorBenchmark]:
    return type(
        _class_name(operator), (OperatorBenchmark,), {"operator": operator, "__doc__": f"The operator `{operator}`."}
    )


def category_runner(name: str) -> Callable[..., list[Record]] | None:
    """`run_all_<category>_operations_benchmarks`, which measures and prints a category."""
    category = name.removeprefix("run_all_").removesuffix("_operations_benchmarks")
    if f"run_all_{category}_operations_benchmarks" != name or category not in categories():
        return None

    def run_all(*, backend: str = "torch", size: str = "medium", sampling: Sampling | None = None) -> list[Record]:
        return run_operators([op.name for op in find(category=[category])], backend, size, sampling)

    run_all.__name__, run_all.__doc__ = name, f"Measure and print every operator of the category {category}."
    return run_all


def run_operators(names: Sequence[str], backend: str, size: str, sampling: Sampling | None = None) -> list[Record]:
    """Measure operators one after the other and print each line as it is known; what is refused says so."""
    records = []
    own = LaunchConfig().python
    python = interpreter(Case(feature="ops", name=names[0], params={"backend": backend})) or own
    with Workers(LaunchConfig(python=python)) as workers:
        for name in names:
            benchmark = _class(name)(backend=backend, size=size, sampling=sampling)
            try:
                records.append(benchmark.run_on(workers))
                benchmark.print_benchmark_results()
            except TesseraError as error:
                print(f"{benchmark.operator}: {error}", flush=True)
    return records
