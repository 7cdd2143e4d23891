"""Tests of docs/records.md: it is complete, and its example runs."""

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from tessera.measure.samples import Samples
from tessera.results.compare import ExclusionKind
from tessera.results.record import Record
from tessera.results.schema import CREATE_TABLES_SQL
from tessera.results.store import Store
from tests.results.synthetic import make_measured_record

PAGE = (Path(__file__).parents[2] / "docs" / "records.md").read_text()


@pytest.mark.parametrize("kind", [Record, Samples])
def test_every_field_is_described(kind: type) -> None:
    described = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert {field.name for field in fields(kind)} <= described


def test_every_column_of_the_store_is_described() -> None:
    columns = re.findall(r"^    (\w+) (?:INTEGER|TEXT|BLOB)", CREATE_TABLES_SQL, re.MULTILINE)
    assert len(columns) == 22
    section = PAGE[PAGE.index("## The store") : PAGE.index("### Files")]
    assert set(columns) <= set(re.findall(r"`(\w+)`", section))


def test_every_exclusion_kind_is_described() -> None:
    section = PAGE[PAGE.index("### What is not compared") :]
    described = {
        kind.strip() for row in re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE) for kind in row.split(",")
    }
    assert set(get_args(ExclusionKind)) <= described


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    record = make_measured_record("conv2d", 1.0, np.random.default_rng())
    with Store("results.sqlite") as store:
        store.add_all(store.start_run(), [record, make_measured_record("add", 1.0, np.random.default_rng())])
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(example, {})
    assert capsys.readouterr().out == f"ops/conv2d {min(record.values)}\n"
