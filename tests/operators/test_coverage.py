"""Tests of the coverage of torch's public operators: every operator is covered, or listed with a valid reason."""

from __future__ import annotations

import fnmatch

import pytest
import torch

from tessera.operators import coverage as module
from tessera.operators.catalogue import OPERATORS
from tessera.operators.coverage import CoverageRow, compute_coverage, find_called_names, list_public_operators
from tessera.operators.sources.opinfo_index import load_index


@pytest.fixture(scope="module")
def rows() -> dict[str, CoverageRow]:
    return {row.name: row for row in compute_coverage()}


def test_nothing_is_missing_without_a_reason(rows):
    assert [row.name for row in rows.values() if not row.by and not row.reason] == []
    assert all(row.status == "missing" or row.by for row in rows.values())


def test_public_operators_match_torch_overrides(rows):
    assert {"add", "nn.functional.relu", "linalg.det", "fft.fft", "special.erfcx", "zeros", "Tensor.view"} <= set(rows)
    assert not {"Tensor.add", "Tensor.add_", "Tensor.__add__", "Tensor.grad", "no_grad", "_add_batch_dim"} & set(rows)
    assert len(rows) > 800
    for name in rows:
        actual = torch
        for part in name.split("."):
            actual = getattr(actual, part)
        assert callable(actual)


def test_covering_operators_exist_and_call_the_operator(rows):
    for row in rows.values():
        if row.status == "catalogue":
            last = row.name.rpartition(".")[2]
            for operator in row.by:
                called = {name.rpartition(".")[2].rstrip("_") for name in find_called_names(OPERATORS[operator].torch)}
                assert last.rstrip("_") in called
        elif row.status == "opinfo":
            assert set(row.by) <= set(load_index())


def test_catalogue_operators_cover_the_operators_they_call(rows):
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
    assert {name for name in find_called_names(expression) if name} == names


def test_every_stored_reason_belongs_to_an_existing_operator(rows):
    written = module._load_data()
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


def test_coverage_follows_the_catalogue(monkeypatch):
    before = {row.name: row.status for row in compute_coverage()}
    kept = {name: op.torch for name, op in OPERATORS.items() if name != "matmul"}
    monkeypatch.setattr(module, "list_torch_expressions", lambda: kept)
    after = {row.name: row.status for row in compute_coverage()}
    assert before["linalg.matmul"] == "alias"
    assert after["linalg.matmul"] in ("alias", "opinfo")
    assert set(before) == set(after) == set(list_public_operators())
