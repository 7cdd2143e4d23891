"""Tests of tables of operator cases: CSV and TOML, the shipped tables, lists of shapes, and bad input."""

from __future__ import annotations

import random

import pytest

from tessera.cli.main import main
from tessera.errors import TesseraError
from tessera.operators.case_tables import list_tables, load_table_cases
from tessera.operators.cases import cases
from tessera.operators.preparation import prepare_pass, resolve_inputs
from tessera.suites.suite import parse_suite

CSV = """\
operator,dtype,pass,layout,lhs,rhs,data,weight,padding
matmul,float64,forward,,16x8,8x4,,,
matmul,,forward,strided,16x8,8x4,,,
conv2d,,forward,channels_last,,,2x8x6x6,4x8x3x3,0
"""


def get_shapes(case):
    return {name: entry.shape for name, entry in resolve_inputs(case)[1].items()}


def test_a_csv_table_gives_shapes_attributes_dtypes_and_layouts(tmp_path):
    (tmp_path / "table.csv").write_text(CSV)
    product, strided, convolution = load_table_cases(str(tmp_path / "table.csv"))
    assert get_shapes(product) == {"lhs": (16, 8), "rhs": (8, 4)}
    assert product.params["dtype"] == "float64"
    assert (strided.name, strided.params["skew"]) == ("matmul", "strided")
    assert convolution.name == "conv2d_channels_last"
    assert resolve_inputs(convolution)[2]["padding"] == 0
    for case in (product, strided, convolution):
        prepare_pass(case)  # compares the output with the reference


def test_lists_of_shapes_belong_together_in_tables_and_suites(tmp_path):
    (tmp_path / "table.toml").write_text(
        '[[cases]]\noperator = ["add", "subtract"]\npass = "forward"\nlhs = [[4, 4], [8, 1]]\nrhs = [[4, 4], [1, 8]]\n'
    )
    selected = load_table_cases(str(tmp_path / "table.toml"))
    assert [(case.name, get_shapes(case)["lhs"], get_shapes(case)["rhs"]) for case in selected] == [
        ("add", (4, 4), (4, 4)),
        ("add", (8, 1), (1, 8)),
        ("subtract", (4, 4), (4, 4)),
        ("subtract", (8, 1), (1, 8)),
    ]
    block = {"feature": "ops", "names": ["add"], "passes": ["forward"], "size": ["small"]}
    suite = parse_suite({"cases": [block | {"inputs": {"lhs": [[4, 4], [8, 1]], "rhs": [[4, 4], [1, 8]]}}]}, "mine")
    assert [get_shapes(case)["lhs"] for case in suite.cases] == [(4, 4), (8, 1)]


@pytest.mark.parametrize("name", ["operator_benchmark", "opperf"])
def test_the_cases_of_shipped_tables_exist_and_a_random_sample_runs(name):
    selected = load_table_cases(name, **{"pass": ["forward"]})
    assert len(selected) > 100
    seed = random.randrange(1000)
    print("seed", seed)
    small = [case for case in selected if sum(entry.nbytes for entry in resolve_inputs(case)[1].values()) < 4e6]
    for case in random.Random(seed).sample(small, 12):
        prepare_pass(case)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["operator_benchmark", "opperf"])
@pytest.mark.timeout(1200)
def test_every_case_of_the_shipped_tables_runs(name):
    for case in load_table_cases(name, **{"pass": ["forward"]}):
        prepare_pass(case)


def test_the_command_runs_and_lists_a_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text("operator,pass,lhs,rhs\nadd,forward,3x4,3x4\n")
    assert main(["ops", "--table", "table.csv", "--list"]) == 0
    assert "ops/add[" in capsys.readouterr().out
    assert main(["ops", "--table", "table.csv", "--quick", "--json"]) == 0
    assert '"lhs":[3,4]' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("operator,lhs\nadd,3x4,9\n", "line 2 has more cells than the header"),
        ("operator,weight\nadd,3x4\n", "line 2: add has no input or argument of this name: got 'weight'"),
        ("operator,layout\nadd,diagonal\n", "line 2: unknown layout: got 'diagonal'"),
        ("operator,layout\nadd,channels_last\n", "line 2: the operator has no channels-last variant: got 'add'"),
        ("lhs\n3x4\n", "line 2: the row names no operator"),
        ("operator\nadda\n", "line 2: unknown operator: got 'adda'; did you mean add"),
        ("operator,lhs\nadd,soon\n", "line 2: invalid shape of lhs: got 'soon'"),
        ("operator\n", "the table has no cases"),
    ],
)
def test_a_bad_table_is_one_line(tmp_path, capsys, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text(text)
    assert main(["ops", "--table", "table.csv"]) == 2
    assert message in capsys.readouterr().err


def test_an_unknown_table_names_the_shipped_ones(capsys):
    assert list_tables() == ["operator_benchmark", "opperf"]
    assert main(["ops", "--table", "nothing"]) == 2
    assert "allowed: operator_benchmark, opperf, a path" in capsys.readouterr().err


def test_lists_of_different_lengths_and_names_as_text_are_errors():
    with pytest.raises(TesseraError, match="lists of shapes must have the same length: got 'lhs: 1, rhs: 2'"):
        cases(["add"], inputs={"lhs": [[1, 2]], "rhs": [[1, 2], [3, 4]]})
    with pytest.raises(TesseraError, match="names and categories of operators must be lists: got 'add'"):
        cases("add")
