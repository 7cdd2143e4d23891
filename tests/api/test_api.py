"""Tests of the public names of `tessera`, used as in a script or notebook."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tessera
from tessera.api.reference import generate_reference
from tessera.errors import TesseraError

ROOT = Path(__file__).parents[2]


def run_python(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=110, check=False
    )


def test_importing_tessera_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, tessera; dir(tessera); tessera.Store, tessera.benchmark, tessera.TesseraError;"
        "bad = {'torch', 'scipy', 'plotly', 'pandas'} & set(sys.modules); assert not bad, bad"
    )
    done = run_python(code, tmp_path)
    assert done.returncode == 0, done.stderr


def test_every_public_name_resolves_and_is_documented() -> None:
    assert dir(tessera) == sorted(tessera.__all__)
    text = generate_reference()
    for name in tessera.__all__:
        value = getattr(tessera, name)
        if not name.startswith("__"):
            assert value.__doc__, name
            assert f"## `tessera.{name}`" in text
            assert name in (tessera.__doc__ or "") or name in ("Case", "Record", "RunResult", "Timing", "TesseraError")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tessera.nothing  # noqa: B018


def test_the_reference_in_the_docs_is_up_to_date() -> None:
    written = (ROOT / "docs" / "api.md").read_text()
    assert written == generate_reference(), "run: python -m tessera.api.reference --write docs/api.md"


def test_time_and_interleave() -> None:
    timing = tessera.time(lambda: sum(range(2000)), budget=0.05)
    assert 0 < timing.estimate.low <= timing.median <= timing.estimate.high
    assert timing.to_dict()["samples"] == len(timing.samples.values)
    assert "95 % interval" in str(timing)
    assert timing._repr_html_().startswith("<table>")
    fixed = tessera.time(lambda: None, warmup=1, iterations=5)
    assert len(fixed.samples.values) == 5
    result = tessera.interleave({"a": lambda: sum(range(500)), "b": lambda: sum(range(5000))}, budget=0.1)
    assert result.ratio("b", "a").low > 2


SCRIPT = """
import tessera

@tessera.benchmark(size=[10, 1000])
def sort(size):
    data = list(range(size, 0, -1))
    return lambda: sorted(data)

if __name__ == "__main__":
    before = tessera.run(sort, name="before", launches=2, budget=0.05, quiet=True)
    after = tessera.run(sort, name="after", launches=2, budget=0.05, quiet=True)
    comparison = tessera.compare(before, after)
    print(len(before), [record.status for record in after], len(before[0].launches), len(comparison.cases))
    print(tessera.compare("before", "after").to_dict()["cases"][0]["key"])
    print(sorted(before.to_pandas()["size"]), comparison.to_pandas().columns[0])
    assert "<td>sort</td>" in before._repr_html_() and comparison._repr_html_().startswith("<table>")
    assert before.to_dict()["records"][0]["case"]["name"] == "sort" and str(comparison)
    with tessera.Store() as store:
        print([run.name for run in store.list_runs()])
"""


def test_a_script_runs_its_functions_twice_and_compares_the_runs(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "2 ['ok', 'ok'] 2 2",
        "function/sort[size=10]",
        "[10, 1000] case",
        "['before', 'after']",
    ]


def test_an_unguarded_script_gets_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "unguarded.py"
    path.write_text(SCRIPT.replace('if __name__ == "__main__":', "if True:"))
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False
    )
    assert '__name__ == "__main__"' in done.stdout + done.stderr


def test_a_function_without_a_file_runs_in_this_process(tmp_path: Path) -> None:
    code = """
import tessera
exec(compile("@tessera.benchmark\\ndef f():\\n    return sum(range(100))", "<cell>", "exec"))
result = tessera.run(f, store=":memory:", budget=0.02, quiet=True)
print(result[0].status, len(result[0].launches), "calling process" in result[0].notes[0])
"""
    done = run_python(code, tmp_path)
    assert done.stdout.strip() == "ok 1 True", done.stderr


def test_cases_and_compare_name_mistakes(tmp_path: Path) -> None:
    with pytest.raises(TesseraError, match="unknown feature"):
        tessera.cases("nothing")
    with pytest.raises(TesseraError, match="unknown axis of ops"):
        tessera.cases("ops", nonsense=1)
    with pytest.raises(TesseraError, match="has no records"):
        tessera.compare([], [])
    with pytest.raises(TesseraError, match="no cases to run"):
        tessera.run([])


def test_plans_have_rows_and_html() -> None:
    from torch import nn

    from tessera.coregrid import Convolution

    conv = Convolution(
        batch=1, height=14, width=14, in_channels=64, out_channels=64, kernel=(3, 3), padding=((1, 1), (1, 1))
    )
    search = tessera.plan_conv2d(conv, "wormhole-n150")
    best = search.best.plan.to_dict()
    assert best["fits"]
    assert search.to_dict()["candidates"][0]["layout"] == best["layout"]
    assert len(search.to_pandas()) == len(search.candidates)
    assert search._repr_html_().startswith("<table>")
    with tessera.PhasedModel(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)), budget="64KB") as model:
        rows = model.plan.to_rows()
        assert sum(row["layers"] for row in rows) == 2
        assert sum(row["bytes"] for row in rows) == model.weight_bytes
        assert "<th>working_bytes</th>" in model.plan._repr_html_()
