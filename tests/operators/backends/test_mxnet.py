"""MXNet in its own interpreter: how it writes operators, and what becomes of its cases there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tessera.errors import Refused, TesseraError
from tessera.launch import LaunchConfig
from tessera.measure.samples import Sampling
from tessera.operators import backends
from tessera.operators.backends.setup import own_python, setup_backend
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS
from tessera.results.record import Case, Record
from tessera.suites.crews import Crews
from tessera.suites.features import feature

TABLE = backends.expressions("mxnet")
ONCE = Sampling(warmup=0, iterations=3)


def measured(crews: Crews, case: Case) -> Record:
    doors = feature("ops")
    (record,) = crews.of(case).run("tessera.suites.worker:measure", doors.run, doors.preload, case, ONCE)
    return record


def one(name: str, which: str, **axes) -> Case:
    (case,) = cases([name], backend=["mxnet"], size=["small"], passes=[which], **axes)
    return case


@pytest.fixture
def crews() -> Iterator[Crews]:
    """Workers in MXNet's interpreter, where it is set up."""
    try:
        own_python("mxnet")
    except TesseraError as error:
        pytest.skip(str(error))
    with Crews(LaunchConfig()) as started:
        yield started


def test_it_has_more_operators_than_its_own_benchmark():
    assert len(TABLE) >= 240
    assert set(TABLE) <= set(OPERATORS)


@pytest.mark.parametrize("name", TABLE)
def test_an_expression_uses_what_the_operator_has_and_mxnets_own(name):
    operator = OPERATORS[name]
    code = compile(TABLE[name], name, "eval")
    allowed = {"mx", "nd", "mnp", "npx", "range", "len", *operator.input_names()}
    used = set(code.co_names) | {n for c in code.co_consts if hasattr(c, "co_names") for n in c.co_names}
    roots = {word for word in used if not re.search(rf"\.{word}\b", TABLE[name])}
    assert roots <= allowed
    assert {"nd", "mnp", "npx", *operator.inputs("small")} & used


@pytest.mark.timeout(60)
def test_every_pass_is_measured_there_and_the_record_tells_where(crews):
    for name, which in (("add", "forward"), ("conv2d", "both"), ("matmul", "backward")):
        record = measured(crews, one(name, which))
        assert record.status == "ok"
        assert len(record.values) == 3
        libraries = record.environment["libraries"]
        assert libraries["mxnet"] == "1.9.1"
        assert libraries["numpy"].startswith("1.23.")
        assert "torch" not in libraries


@pytest.mark.timeout(60)
def test_what_it_lacks_is_refused_with_the_reason(crews):
    for case, reason in (
        (one("add", "forward", dtype=["bfloat16"]), "got 'bfloat16'; allowed: float32, float64, float16"),
        (one("add", "forward", skew=["strided"]), "MXNet copies its inputs into one layout: got 'lhs with strides"),
    ):
        with pytest.raises(Refused, match=re.escape(reason)):
            measured(crews, case)


@pytest.mark.timeout(60)
def test_threads_are_used_after_a_fork(crews):
    """A product of matrices on two threads takes more CPU time than wall time, in a process that was forked."""
    case = one("matmul", "forward", inputs={"lhs": (1500, 1500), "rhs": (1500, 1500)})
    shares = {}
    for threads in (1, 2):
        with Crews(LaunchConfig(threads=threads, pin=False)) as several:
            (samples,) = measured(several, case).launches
        shares[threads] = sum(samples.cpu) / sum(samples.values)
    assert shares[1] < 1.2
    assert shares[2] > 1.2


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_it_can_be_set_up_and_every_operator_passes_its_check(monkeypatch, tmp_path):
    monkeypatch.setenv("TESSERA_BACKENDS", str(tmp_path))
    said: list[str] = []
    python = setup_backend("mxnet", said.append)
    assert any("mxnet-1.9.1" in line for line in said)
    assert python == own_python("mxnet")
    wrong = {}
    with Crews(LaunchConfig()) as crews:
        for case in cases(sorted(TABLE), backend=["mxnet"], size=["small"], passes=["forward", "backward", "both"]):
            try:
                assert measured(crews, case).values
            except TesseraError as error:
                wrong[case.key] = str(error)
    assert wrong == {}
