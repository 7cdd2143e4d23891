"""Coverage of torch's public operators: every one measured or missing for a reason that still holds."""

from __future__ import annotations

import fnmatch

import pytest
import torch

from tessera.operators import coverage as module
from tessera.operators.catalogue import OPERATORS
from tessera.operators.coverage import Row, coverage, names_in, public_operators
from tessera.operators.sources.opinfo_index import index


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    return {row.name: row for row in coverage()}


def test_nothing_is_missing_without_a_reason(rows):
    assert [row.name for row in rows.values() if not row.by and not row.reason] == []
    assert all(row.status == "missing" or row.by for row in rows.values())


def test_public_operators_are_what_torch_says(rows):
    assert {"add", "nn.functional.relu", "linalg.det", "fft.fft", "special.erfcx", "zeros", "Tensor.view"} <= set(rows)
    assert not {"Tensor.add", "Tensor.add_", "Tensor.__add__", "Tensor.grad", "no_grad", "_add_batch_dim"} & set(rows)
    assert len(rows) > 800
    for name in rows:
        found = torch
        for part in name.split("."):
            found = getattr(found, part)
        assert callable(found)


def test_what_covers_an_operator_exists_and_calls_it(rows):
    for row in rows.values():
        if row.status == "catalogue":
            last = row.name.rpartition(".")[2]
            for operator in row.by:
                called = {name.rpartition(".")[2].rstrip("_") for name in names_in(OPERATORS[operator].torch)}
                assert last.rstrip("_") in called
        elif row.status == "opinfo":
            assert set(row.by) <= set(index())


def test_operators_of_the_catalogue_cover_what_they_call(rows):
    assert "add" in rows["add"].by
    assert rows["matmul"].status == rows["nn.functional.conv2d"].status == "catalogue"
    assert rows["conv2d"].status == "alias"
    assert "conv2d" in rows["conv2d"].by
    assert rows["set_num_threads"].status == "missing"


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("torch.add(lhs, rhs)", {"add"}),
        ("F.relu(data).view(-1)", {"nn.functional.relu", "Tensor.view"}),
        ("torch.nn.functional.gelu(data)", {"nn.functional.gelu"}),
        ("data.add_(other)", {"Tensor.add_"}),
        ("lhs @ rhs + 1", {"matmul", "add"}),
        ("-data", {"neg"}),
        ("data[index]", {"Tensor.__getitem__"}),
        ("torch.max(data, dim=-1)[0]", {"max"}),
        ("lhs < rhs", {"lt"}),
        ("torch.linalg.inv(torch.exp(data))", {"linalg.inv", "exp"}),
        ("data.to(torch.float16)", {"Tensor.to"}),
    ],
)
def test_names_are_found_in_expressions(expression, names):
    assert {name for name in names_in(expression) if name} == names


def test_reasons_are_kept_for_operators_that_exist(rows):
    written = module._written_down()
    named = {*written["reasons"], *written["aliases"], *written["aliases"].values()}
    assert named <= set(rows)
    for rule in written["rules"]:
        for pattern in rule["names"]:
            assert fnmatch.filter(rows, pattern), pattern


def test_few_operators_that_compute_are_missing_from_the_catalogue(rows):
    covered = [row for row in rows.values() if row.status in ("catalogue", "alias")]
    through_opinfo = [row.name for row in rows.values() if row.status == "opinfo"]
    assert len(covered) >= 700
    assert len(through_opinfo) < 30, through_opinfo


def test_the_list_follows_the_catalogue(monkeypatch):
    before = {row.name: row.status for row in coverage()}
    kept = {name: op.torch for name, op in OPERATORS.items() if name != "matmul"}
    monkeypatch.setattr(module, "torch_expressions", lambda: kept)
    after = {row.name: row.status for row in coverage()}
    assert before["linalg.matmul"] == "alias"
    assert after["linalg.matmul"] in ("alias", "opinfo")
    assert set(before) == set(after) == set(public_operators())
