"""Views and copies: a record says which of the two it is, and the one is never held against the other."""

from __future__ import annotations

import pytest

from tessera.cli.ops_tables import print_backends
from tessera.measure.samples import Sampling
from tessera.operators.bench import run_case
from tessera.operators.cases import cases
from tessera.operators.section.backends import backends_section
from tessera.operators.views import COPY, VIEW, alike, given_as
from tessera.report.blocks import Plot, Table
from tessera.results.record import Record
from tests.operators.test_operators import WORKER


def measured(name: str, backend: str, which: str = "forward") -> Record:
    (case,) = cases([name], backend=[backend], size=["small"], passes=[which])
    return run_case(WORKER, case, Sampling(warmup=0, iterations=3))


@pytest.mark.parametrize(
    ("name", "which", "notes"),
    [
        ("transpose", "forward", (VIEW,)),
        ("transpose", "backward", (VIEW,)),
        ("to_numpy", "forward", (VIEW,)),
        ("reshape", "both", (VIEW,)),
        ("add", "backward", (VIEW,)),  # the gradient of a sum is handed on
        ("add", "forward", ()),
        ("inplace_add", "forward", ()),  # its output is its input, but it computes
        ("transpose_contiguous", "forward", ()),
        ("empty", "forward", ()),
    ],
)
def test_torch_says_what_is_a_view(name, which, notes):
    assert measured(name, "torch", which).notes == notes


def test_other_backends_say_it_too():
    assert measured("transpose", "numpy").notes == (VIEW,)
    pytest.importorskip("jax")
    assert measured("transpose", "jax").notes == (COPY,)
    assert measured("exp", "jax").notes == ()


def test_a_copy_is_not_held_against_a_view(capsys):
    pytest.importorskip("jax")
    records = [measured(name, backend) for name in ("transpose", "exp") for backend in ("torch", "numpy", "jax")]
    view, other_view, copy = records[:3]
    assert alike(view, other_view)
    assert not alike(view, copy)
    assert (given_as(view), given_as(copy), given_as(records[-1])) == ("view", "copy", "")
    print_backends(records, "time", "csv", None)
    rows = {line.split(",")[0]: line.split(",") for line in capsys.readouterr().out.splitlines()}
    assert rows["transpose"][-1] == "copy"
    assert rows["transpose"][-2].endswith("x")
    assert rows["exp"][-1].endswith("x")
    section = backends_section(records)
    assert section is not None
    assert "nothing is compared" in section.intro
    (plot,) = (block for block in section.blocks if isinstance(block, Plot))
    assert {trace["name"]: trace["y"] for trace in plot.figure["data"]}["jax"] == ["exp"]
    table = next(b for b in section.blocks if isinstance(b, Table) and "several backends" in b.caption)
    assert table.rows[0][-2].text == "copy"  # type: ignore[union-attr]


def test_where_nothing_can_be_compared_there_is_a_table_and_no_plot():
    pytest.importorskip("jax")
    section = backends_section([measured("transpose", "torch"), measured("transpose", "jax")])
    assert section is not None
    assert [type(block) for block in section.blocks] == [Table]
