"""Tests of cases from torch's OpInfo database: the stored index, samples and their checks, and refused cases."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter

import pytest
import torch

from tessera.errors import Refused, TesseraError
from tessera.launch.worker import RunContext
from tessera.measure.samples import Sampling
from tessera.operators.bench import run_case
from tessera.operators.sources import opinfo
from tessera.operators.sources.opinfo_index import build_index, load_database, load_index

pytest.importorskip("expecttest")


def prepare(name: str, which: str = "forward", size: str = "small", dtype: str = "float32", seed: int = 0):
    (case,) = opinfo.cases([name], size=[size], passes=[which], dtype=[dtype], seed=seed)
    return opinfo.prepare_case(case)


def test_stored_index_matches_the_database():
    kept = load_index()
    assert build_index() == kept, "run python -m tessera.operators.sources.opinfo_index"
    assert len(kept) == len(load_database())
    assert len({entry.operator for entry in kept.values()}) >= 630


def test_listing_cases_imports_neither_torch_nor_the_database():
    code = (
        "import sys; from tessera.operators.sources.opinfo import cases; assert len(cases(['*'])) > 2000;"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_names_are_those_of_variants_and_globs_find_them():
    names = {case.name for case in opinfo.cases(["linalg.norm*", "div*"], size=["small"], passes=["forward"])}
    assert {"linalg.norm", "linalg.norm.subgradients_at_zero", "div.no_rounding_mode", "div.floor_rounding"} <= names


def test_twelve_random_entries_run_and_match():
    names = random.sample(sorted(load_index()), 12)
    ended = Counter()
    for case in opinfo.cases(names, size=["small"], passes=["forward"], seed=random.randrange(2**31)):
        try:
            made = opinfo.prepare_case(case)
        except Refused as refused:
            ended["refused"] += 1
            print(case.name, refused)
            continue
        ended["ran"] += 1
        made.call()
        assert made.notes[1].startswith(("checked against", "random output"))
    assert ended["ran"] >= 8, names


@pytest.mark.parametrize("which", ["backward", "both"])
@pytest.mark.parametrize("name", ["mul", "nn.functional.conv2d", "linalg.solve", "cumsum", "nn.functional.layer_norm"])
def test_gradients_run_and_agree(name, which):
    made = prepare(name, which)
    assert any(gradient is not None for gradient in made.call())


def test_sizes_grow_and_a_seed_repeats():
    small, again, other, medium = (
        prepare("sin"),
        prepare("sin"),
        prepare("sin", seed=1),
        prepare("sin", size="medium"),
    )
    assert torch.equal(small.call(), again.call())
    assert not torch.equal(small.call(), other.call())
    assert medium.call().numel() >= 16 * small.call().numel() >= 16 * 4096


def test_torch_sample_lengths_are_restored():
    from torch.testing._internal import common_methods_invocations as invocations

    before = invocations.S, invocations.M, invocations.L
    prepare("matmul")
    assert before == (invocations.S, invocations.M, invocations.L)


def test_flops_and_bytes_of_a_matrix_product():
    made = prepare("mm")
    out = made.call()
    inner = made.flops / (2 * out.numel())
    assert inner == int(inner) > 1
    rows, columns = out.shape
    assert made.moved == 4 * (rows * inner + inner * columns + rows * columns)


def test_views_move_no_bytes():
    assert prepare("transpose").moved == 0


def test_a_wrong_operator_is_refused(monkeypatch):
    entry = load_database()["exp"]
    monkeypatch.setattr(entry, "op", lambda data: torch.exp(data) * 1.01)
    with pytest.raises(Refused, match="differs from the reference"):
        prepare("exp")


def test_operator_without_a_reference_is_compared_with_double_precision(monkeypatch):
    entry = load_database()["cumsum"]
    monkeypatch.setattr(entry, "ref", None)
    assert "double precision" in prepare("cumsum").notes[1]

    def round_values(data: torch.Tensor, dim: int, **rest: object) -> torch.Tensor:
        return torch.cumsum(data.to(torch.bfloat16).to(data.dtype) if data.dtype is torch.float32 else data, dim)

    monkeypatch.setattr(entry, "op", round_values)
    with pytest.raises(Refused, match="differs from the reference"):
        prepare("cumsum")


def test_tolerance_near_a_pole_follows_the_input_rounding(monkeypatch):
    assert "one rounding of its inputs" in prepare("polygamma.polygamma_n_1", size="medium").notes[1]
    entry = load_database()["polygamma.polygamma_n_1"]
    plain = entry.op
    monkeypatch.setattr(entry, "op", lambda data, n: plain(data, n) * (1.1 if data.dtype is torch.float32 else 1))
    with pytest.raises(Refused, match="differs from the reference"):
        prepare("polygamma.polygamma_n_1", size="medium")


@pytest.mark.parametrize("name", ["svd", "linalg.svd", "linalg.eig", "linalg.eigh"])
def test_eigenvectors_are_checked_up_to_sign(name, monkeypatch):
    assert prepare(name).notes[1].startswith("checked against")
    entry = load_database()[name]
    plain = entry.op

    def return_wrong(data: torch.Tensor, *args: object, **kwargs: object) -> tuple[torch.Tensor, ...]:
        first, *rest = plain(data, *args, **kwargs)
        return first * (1.1 if data.dtype is torch.float32 else 1), *rest

    monkeypatch.setattr(entry, "op", return_wrong)
    with pytest.raises(Refused, match="differs from the reference"):
        prepare(name)


def test_a_wrong_gradient_is_refused(monkeypatch):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, data):
            return data.sin()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * (1 if gradient.dtype is torch.float32 else 2)

    monkeypatch.setattr(load_database()["sin"], "op", Wrong.apply)
    with pytest.raises(Refused, match="gradient of sin"):
        prepare("sin", "backward")


def test_random_operators_are_checked_by_shape():
    assert "random" in prepare("bernoulli").notes[1]
    assert "random" in prepare("normal").notes[1]


def test_unsupported_passes_and_dtypes_are_refused():
    with pytest.raises(TesseraError, match=r"did you mean .*softmax"):
        opinfo.cases(["softmaxx"])
    with pytest.raises(TesseraError, match="unknown size"):
        opinfo.cases(["sin"], size=["large"])
    with pytest.raises(Refused, match="has no gradient"):
        prepare("argmax", "backward")
    with pytest.raises(Refused, match="does not support the dtype"):
        prepare("linalg.svd", dtype="bfloat16")


def test_bitwise_operators_use_the_dtype_of_their_entry():
    (case,) = opinfo.cases(["bitwise_and"], size=["small"], passes=["forward", "backward"])
    assert case.params["dtype"] == "int64"
    assert opinfo.prepare_case(case).call().dtype is torch.int64


def test_record_notes_name_the_sample_and_the_check():
    (case,) = opinfo.cases(["mm"], size=["small"], passes=["forward"])
    record = run_case(RunContext(), case, Sampling(budget=0.05))
    assert record.status == "ok"
    assert record.metrics["gflops"].value > 0
    assert record.notes[0].startswith("OpInfo sample")
    assert record.notes[1].startswith("checked against")


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "expecttest", None)
    load_database.cache_clear()
    try:
        with pytest.raises(TesseraError, match=r"tessera\[opinfo\]"):
            load_database()
    finally:
        monkeypatch.undo()
        load_database.cache_clear()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", ["small", "medium"])
@pytest.mark.parametrize(("which", "least"), [("forward", 675), ("backward", 520)])
def test_nearly_all_entries_run(which, least, size, capsys):
    refused: dict[str, str] = {}
    ran = 0
    for case in opinfo.cases(["*"], size=[size], passes=[which]):
        if case.params["pass"] != which or (which == "backward" and not load_index()[case.name].differentiable):
            continue
        try:
            opinfo.prepare_case(case)
            ran += 1
        except Refused as error:
            refused[case.name] = str(error)
    with capsys.disabled():
        print(f"\n{size} {which}: {ran} run, {len(refused)} refused")
        for name, reason in refused.items():
            print(f"  {name}: {reason}")
    assert ran >= least
