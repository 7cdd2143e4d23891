"""The pytest plugin: the fixture `bench` times a function of a test; `--tessera-compare` compares with a stored run.

`bench` is called like the fixture `benchmark` of pytest-benchmark. Without `--tessera` it calls the function once, so
that the tests stay quick. With `--tessera` the times are stored as a run. A launch is the sampling unit of comparisons:
pytest is started again for every further launch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from tessera.measure.samples import Samples, Sampling
    from tessera.results.compare import Comparison
    from tessera.results.record import Record

T = TypeVar("T")
DEFAULT_LAUNCHES = 3
LAUNCH_FILE_VARIABLE = "TESSERA_PYTEST_LAUNCH"  # set in a further launch: the file that it writes its records to


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("tessera", "benchmarks with Tessera")
    group.addoption(
        "--tessera", action="store_true", help="measure the tests that use the fixture bench, and store a run"
    )
    group.addoption(
        "--tessera-compare",
        metavar="RUN",
        help="compare with a stored run; exit code 1 if a test is slower (implies --tessera)",
    )
    group.addoption(
        "--tessera-threshold", metavar="FRACTION", default="3%", help="smallest relevant change (default: 3%%)"
    )
    group.addoption("--tessera-run-name", metavar="NAME", help="name of the stored run (default: date and number)")
    group.addoption("--tessera-store", metavar="PATH", help="file of all runs (default: as in `tessera run`)")
    group.addoption(
        "--tessera-launches",
        metavar="N",
        type=int,
        default=DEFAULT_LAUNCHES,
        help=f"number of pytest processes that measure each test (default: {DEFAULT_LAUNCHES})",
    )
    group.addoption(
        "--tessera-budget", metavar="TIME", default="1s", help="sampling time per test and launch (default: 1s)"
    )
    group.addoption(
        "--tessera-target",
        metavar="FRACTION",
        default="3%",
        help="relative precision at which sampling stops (default: 3%%)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Check the options, and register the session of benchmarks."""
    config.addinivalue_line("markers", "bench(group=None, budget=None, target=None): settings of the fixture bench")
    if not (config.getoption("--tessera") or config.getoption("--tessera-compare")):
        return
    from tessera.errors import TesseraError

    if config.getoption("dist", "no") != "no":
        raise pytest.UsageError("--tessera does not support parallel tests (pytest-xdist): omit -n and --dist")
    try:
        config.pluginmanager.register(BenchSession.from_config(config), "tessera-session")
    except TesseraError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Bench:
    """Time a function: `result = bench(function, *args, **kwargs)`, or `bench.pedantic(function, rounds=10)`."""
    session: BenchSession | None = request.config.pluginmanager.get_plugin("tessera-session")
    marker = request.node.get_closest_marker("bench")
    settings = dict(marker.kwargs) if marker is not None else {}
    return Bench(name=request.node.nodeid, session=session, group=settings.get("group"), settings=settings)


@dataclass(frozen=True, slots=True)
class BenchStats:
    """Statistics of the timed rounds in seconds, under the names of pytest-benchmark."""

    data: tuple[float, ...]

    @property
    def stats(self) -> BenchStats:
        return self

    @property
    def rounds(self) -> int:
        return len(self.data)

    @property
    def min(self) -> float:
        return min(self.data)

    @property
    def max(self) -> float:
        return max(self.data)

    @property
    def mean(self) -> float:
        return sum(self.data) / len(self.data)

    @property
    def median(self) -> float:
        import statistics

        return statistics.median(self.data)

    @property
    def stddev(self) -> float:
        import statistics

        return statistics.stdev(self.data) if len(self.data) > 1 else 0.0

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


@dataclass(slots=True, kw_only=True)
class Bench:
    """The object behind the fixture `bench`. A test may use it once."""

    name: str
    session: BenchSession | None
    group: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    extra_info: dict[str, Any] = field(default_factory=dict)
    stats: BenchStats | None = None
    _used: bool = False

    @property
    def enabled(self) -> bool:
        """Whether times are measured."""
        return self.session is not None

    @property
    def disabled(self) -> bool:
        return not self.enabled

    def __call__(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call the function once and return its result; with `--tessera`, time further calls before that."""
        self._mark_used()
        result = function(*args, **kwargs)
        if self.session is not None:
            timed = function if not (args or kwargs) else lambda: function(*args, **kwargs)
            self._measure(timed, self.session.make_sampling(self.settings))
        return result

    def pedantic(
        self,
        target: Callable[..., T],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Callable[[], tuple[Sequence[Any], Mapping[str, Any]] | None] | None = None,
        teardown: Callable[..., Any] | None = None,
        rounds: int = 1,
        warmup_rounds: int = 0,
        iterations: int = 1,
    ) -> T:
        """Time a fixed number of rounds, each of `iterations` calls.

        `setup` is called before every round and may return arguments; `teardown` is called after every round.
        """
        from tessera.errors import TesseraError
        from tessera.measure.samples import Sampling

        self._mark_used()
        if setup is not None and (args or kwargs):
            raise TesseraError("pedantic() takes arguments or a set-up function, not both", do="return them from setup")
        if setup is not None and iterations != 1:
            raise TesseraError("pedantic() with a set-up function requires one iteration", got=iterations, allowed="1")
        if rounds < 1 or iterations < 1 or warmup_rounds < 0:
            raise TesseraError(
                "invalid number of rounds or iterations", got=(rounds, warmup_rounds, iterations), allowed="1 or more"
            )
        given: list[tuple[Sequence[Any], Mapping[str, Any]]] = [(tuple(args), dict(kwargs or {}))]
        results: list[T] = []

        def prepare() -> None:
            if teardown is not None and results:
                teardown(*given[0][0], **given[0][1])
            if setup is not None:
                given[0] = setup() or ((), {})

        def run_round() -> None:
            positional, named = given[0]
            for _ in range(iterations):
                result = target(*positional, **named)
            results[:] = [result]

        if self.session is None:
            prepare()
            run_round()
        else:
            sampling = Sampling(warmup=warmup_rounds, iterations=rounds)
            self._measure(run_round, sampling, before=prepare, calls=iterations)
        if teardown is not None:
            teardown(*given[0][0], **given[0][1])
        return results[0]

    def _mark_used(self) -> None:
        from tessera.errors import TesseraError

        if self._used:
            raise TesseraError("the fixture bench is used twice in one test", got=self.name, do="write two tests")
        self._used = True

    def _measure(
        self, timed: Callable[[], Any], sampling: Sampling, before: Callable[[], None] | None = None, calls: int = 1
    ) -> None:
        from dataclasses import replace

        from tessera.measure.sampler import sample

        samples = sample(timed, sampling, before=before)
        if calls > 1:
            samples = replace(samples, values=tuple(value / calls for value in samples.values), loops=calls)
        self.stats = BenchStats(samples.values)
        assert self.session is not None
        self.session.add(self, samples)


@dataclass(slots=True, kw_only=True)
class BenchSession:
    """The benchmarks of one pytest session: their records, and the comparison with a stored run."""

    config: pytest.Config
    threshold: float
    budget: float
    target: float
    launches: int
    compared: str  # name of the run to compare with, empty without a comparison
    records: dict[str, Record] = field(default_factory=dict)
    comparison: Comparison | None = None
    run_name: str = ""
    problems: list[str] = field(default_factory=list)

    @classmethod
    def from_config(cls, config: pytest.Config) -> BenchSession:
        """Read and check the options of the plugin."""
        from tessera.axes import parse_fraction
        from tessera.errors import TesseraError
        from tessera.results.export import is_file_name
        from tessera.results.store import Store
        from tessera.suites.suite import parse_duration

        if config.getoption("--tessera-launches") < 1:
            raise TesseraError("--tessera-launches", got=config.getoption("--tessera-launches"), allowed="1 or more")
        compared = config.getoption("--tessera-compare") or ""
        if compared and not is_file_name(compared) and LAUNCH_FILE_VARIABLE not in os.environ:
            with Store(config.getoption("--tessera-store"), create=False) as store:
                compared = store.get_run(compared).name  # now, because `latest` is later the run of this session
        return cls(
            config=config,
            threshold=parse_fraction(config.getoption("--tessera-threshold")),
            budget=parse_duration(config.getoption("--tessera-budget")),
            target=parse_fraction(config.getoption("--tessera-target")),
            launches=config.getoption("--tessera-launches"),
            compared=compared,
        )

    def make_sampling(self, settings: Mapping[str, Any]) -> Sampling:
        """Return the sampling of a test, with the settings of its marker `bench`."""
        from tessera.axes import parse_fraction
        from tessera.measure.samples import Sampling
        from tessera.suites.suite import parse_duration

        budget, target = settings.get("budget"), settings.get("target")
        return Sampling(
            budget=self.budget if budget is None else parse_duration(budget),
            target=self.target if target is None else parse_fraction(str(target)),
        )

    def add(self, bench: Bench, samples: Samples) -> None:
        """Add the record of one test."""
        from tessera.measure.environment import describe_environment
        from tessera.results.metrics import make_time_metrics
        from tessera.results.record import Case, Record

        params = {"group": bench.group} if bench.group else {}
        record = Record(
            case=Case(feature="function", name=bench.name, params=params),
            version="1",
            launches=(samples,),
            metrics=make_time_metrics(samples),
            environment=describe_environment(),
            details={"extra_info": {name: str(value) for name, value in bench.extra_info.items()}},
        )
        self.records[record.case.key] = record

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Take the further launches, store the run, and compare it."""
        if not self.records and self.compared and not os.environ.get(LAUNCH_FILE_VARIABLE):
            self.problems.append("no test used the fixture bench, so nothing was compared")
            session.exitstatus = max(int(session.exitstatus), int(pytest.ExitCode.TESTS_FAILED))
        if not self.records:
            return
        if launch_file := os.environ.get(LAUNCH_FILE_VARIABLE):
            self._write_launch(Path(launch_file))
            return
        for _ in range(self.launches - 1):
            self._launch_again()
        from tessera.errors import TesseraError

        try:
            self._store_and_compare()
        except TesseraError as error:
            self.problems.append(str(error))
        if self.problems or (self.comparison is not None and self.comparison.regressed):
            session.exitstatus = max(int(session.exitstatus), int(pytest.ExitCode.TESTS_FAILED))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the times of all tests, and the comparison."""
        if not self.run_name and not self.problems:
            return
        import io

        from tessera.report.comparison_text import RunTitles, write_comparison
        from tessera.report.record_tables import write_records_table

        terminalreporter.section("tessera")
        stream = io.StringIO()
        if self.records:
            write_records_table(list(self.records.values()), "terminal", stream)
        if self.comparison is not None:
            titles = RunTitles(self.compared, self.run_name)
            write_comparison(self.comparison, titles, "terminal", stream, everything=True)
        terminalreporter.write(stream.getvalue())
        if self.run_name:
            terminalreporter.line(f"stored as run {self.run_name}")
        for problem in self.problems:
            terminalreporter.line(f"tessera: {problem}", red=True)

    def _launch_again(self) -> None:
        """Run the same tests in a new pytest process, and merge its launches into the records."""
        from tessera.results import strict_json
        from tessera.results.record import Record, merge_launches

        with TemporaryDirectory(prefix="tessera-pytest-") as folder:
            file = Path(folder) / "records.json"
            invocation = self.config.invocation_params
            command = [sys.executable, "-m", "pytest", *map(str, invocation.args), "-p", "no:cacheprovider"]
            env = os.environ | {LAUNCH_FILE_VARIABLE: str(file)}
            done = subprocess.run(command, cwd=invocation.dir, env=env, capture_output=True, text=True, check=False)
            if not file.exists():
                last = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["no output"]
                self.problems.append(f"a further launch of pytest failed: {last[0]}")
                return
            launched = [Record.from_json(row) for row in strict_json.loads(file.read_text())]
        for record in launched:
            if (key := record.case.key) in self.records:
                self.records[key] = merge_launches([self.records[key], record])

    def _write_launch(self, file: Path) -> None:
        from tessera.results import strict_json

        file.write_text(strict_json.dumps([record.to_json() for record in self.records.values()]))

    def _store_and_compare(self) -> None:
        from tessera.results.compare import compare
        from tessera.results.export import read_source
        from tessera.results.store import Store

        path = self.config.getoption("--tessera-store")
        with Store(path) as store:
            run = store.start_run(
                self.config.getoption("--tessera-run-name"), command="pytest --tessera", suite="pytest"
            )
            store.add_all(run, self.records.values())
            self.run_name = store.finish_run(run).name
        if self.compared:
            before, after = (read_source(name, path) for name in (self.compared, self.run_name))
            self.comparison = compare(before.observations, after.observations, threshold=self.threshold)
