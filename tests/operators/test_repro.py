"""Programs that repeat a record: they run without Tessera and compute the very same numbers."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tessera.errors import TesseraError
from tessera.operators.backends.torch_backend import leaves, to_array
from tessera.operators.cases import cases
from tessera.operators.preparation import callable_of
from tessera.operators.repro import program
from tessera.results.record import Case, Metric, Record


def _program(case: Case) -> str:
    environment = {"threads": 1, "allocator": "steady", "libraries": {"torch": "2.13.0"}}
    return program(Record(case=case, metrics={"time": Metric(1e-3, "s")}, environment=environment))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("add", {"dtype": ["bfloat16"]}),
        ("conv2d", {"inputs": {"data": (2, 16, 9, 9), "stride": 2}}),
        ("cat", {}),
        ("cross_entropy", {}),
        ("linalg_cholesky", {"dtype": ["float64"]}),
        ("sort", {"skew": ["reversed"]}),
        ("add", {"skew": ["strided"], "backend": ["numpy"]}),
        ("fft_ifft", {}),
    ],
)
def test_it_computes_what_was_measured(name, options):
    (case,) = cases([name], size=["small"], passes=["forward"], seed=5, **options)
    text = _program(case)
    assert "tessera" not in text.lower()
    lines = text.split("call()\ncall()")[0].split("SETTINGS =")[0] + text.split("os.execv")[1].partition("\n")[2]
    names: dict[str, object] = {}
    exec(compile(lines.split("call()\ncall()")[0], "repro", "exec"), names)
    got = [to_array(leaf) for leaf in leaves(names["call"]())]
    expected = [to_array(leaf) for leaf in leaves(callable_of(case)())]
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("which", ["forward", "backward", "both"])
@pytest.mark.timeout(60)
def test_it_runs_by_itself_and_says_its_time(tmp_path, which):
    (case,) = cases(["matmul"], size=["small"], passes=[which])
    path = tmp_path / "repro.py"
    path.write_text(_program(case))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    assert 0 < float(done.stdout.split()[0]) < 1


def test_what_cannot_be_written_down_is_refused():
    (case,) = cases(["add"], size=["small"], passes=["forward"], cache=["cold"])
    with pytest.raises(TesseraError, match="no program can be written"):
        _program(case)
