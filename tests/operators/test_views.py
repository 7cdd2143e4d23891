"""Tests of views and copies: a record has a note if its output is a view, and views are not compared with copies."""

from __future__ import annotations

import pytest

from tessera.launch.worker import RunContext
from tessera.measure.samples import Sampling
from tessera.operators.bench import run_case
from tessera.operators.cases import cases
from tessera.operators.check import COPY_NOTE, VIEW_NOTE, get_output_kind, same_work
from tessera.operators.section.backends import build_backends_section
from tessera.operators.tables import print_side_by_side
from tessera.report.blocks import Plot, Table
from tessera.results.record import Record


def measure(name: str, backend: str, which: str = "forward") -> Record:
    (case,) = cases([name], backend=[backend], size=["small"], passes=[which])
    return run_case(RunContext(), case, Sampling(warmup=0, iterations=3))


@pytest.mark.parametrize(
    ("name", "which", "notes"),
    [
        ("transpose", "forward", (VIEW_NOTE,)),
        ("transpose", "backward", (VIEW_NOTE,)),
        ("to_numpy", "forward", (VIEW_NOTE,)),
        ("reshape", "both", (VIEW_NOTE,)),
        ("add", "backward", (VIEW_NOTE,)),  # the gradient of a sum is the output gradient itself
        ("add", "forward", ()),
        ("inplace_add", "forward", ()),  # the output shares the memory of the input, but is computed
        ("transpose_contiguous", "forward", ()),
        ("empty", "forward", ()),
    ],
)
def test_torch_records_note_views(name, which, notes):
    assert measure(name, "torch", which).notes == notes


def test_other_backends_note_views_and_copies():
    assert measure("transpose", "numpy").notes == (VIEW_NOTE,)
    pytest.importorskip("jax")
    assert measure("transpose", "jax").notes == (COPY_NOTE,)
    assert measure("exp", "jax").notes == ()


def test_copy_is_not_compared_with_a_view(capsys):
    pytest.importorskip("jax")
    records = [measure(name, backend) for name in ("transpose", "exp") for backend in ("torch", "numpy", "jax")]
    view, other_view, copy = records[:3]
    assert same_work(view, other_view)
    assert not same_work(view, copy)
    assert (get_output_kind(view), get_output_kind(copy), get_output_kind(records[-1])) == ("view", "copy", "")
    print_side_by_side(records, "time", "csv", None)
    rows = {line.split(",")[0]: line.split(",") for line in capsys.readouterr().out.splitlines()}
    assert rows["transpose"][-1] == "copy"
    assert rows["transpose"][-2].endswith("x")
    assert rows["exp"][-1].endswith("x")
    section = build_backends_section(records)
    assert section is not None
    assert "are not compared" in section.intro
    (plot,) = (block for block in section.blocks if isinstance(block, Plot))
    assert {trace["name"]: trace["y"] for trace in plot.figure["data"]}["jax"] == ["exp"]
    table = next(b for b in section.blocks if isinstance(b, Table) and "several backends" in b.caption)
    assert table.rows[0][-2].text == "copy"  # type: ignore[union-attr]


def test_section_without_comparable_cases_has_a_table_and_no_plot():
    pytest.importorskip("jax")
    section = build_backends_section([measure("transpose", "torch"), measure("transpose", "jax")])
    assert section is not None
    assert [type(block) for block in section.blocks] == [Table]
