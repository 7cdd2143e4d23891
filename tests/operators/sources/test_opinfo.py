"""OpInfo's entries: the kept index against the database, samples that run and are checked, what is refused."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter

import pytest
import torch

from tessera.errors import Refused, TesseraError
from tessera.launch.worker import Worker
from tessera.measure.samples import Sampling
from tessera.measure.sync import ALONE
from tessera.operators.bench import run_case
from tessera.operators.sources import opinfo
from tessera.operators.sources.opinfo_index import from_database, index, op_db

pytest.importorskip("expecttest")


def ready(name: str, which: str = "forward", size: str = "small", dtype: str = "float32", seed: int = 0):
    (case,) = opinfo.cases([name], size=[size], passes=[which], dtype=[dtype], seed=seed)
    return opinfo.ready(case)


def test_the_kept_index_is_that_of_the_database():
    kept = index()
    assert from_database() == kept, "run python -m tessera.operators.sources.opinfo_index"
    assert len(kept) == len(op_db())
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


def test_a_random_dozen_of_entries_runs_and_agrees():
    names = random.sample(sorted(index()), 12)
    ended = Counter()
    for case in opinfo.cases(names, size=["small"], passes=["forward"], seed=random.randrange(2**31)):
        try:
            made = opinfo.ready(case)
        except Refused as refused:
            ended["refused"] += 1
            print(case.name, refused)
            continue
        ended["ran"] += 1
        made.call()
        assert made.notes[1].startswith(("checked against", "its numbers are random"))
    assert ended["ran"] >= 8, names


@pytest.mark.parametrize("which", ["backward", "both"])
@pytest.mark.parametrize("name", ["mul", "nn.functional.conv2d", "linalg.solve", "cumsum", "nn.functional.layer_norm"])
def test_gradients_run_and_agree(name, which):
    made = ready(name, which)
    assert any(gradient is not None for gradient in made.call())


def test_sizes_grow_and_a_seed_repeats():
    small, again, other, medium = (
        ready("sin"),
        ready("sin"),
        ready("sin", seed=1),
        ready("sin", size="medium"),
    )
    assert torch.equal(small.call(), again.call())
    assert not torch.equal(small.call(), other.call())
    assert medium.call().numel() >= 16 * small.call().numel() >= 16 * 4096


def test_the_lengths_of_torchs_samples_are_put_back():
    from torch.testing._internal import common_methods_invocations as invocations

    before = invocations.S, invocations.M, invocations.L
    ready("matmul")
    assert before == (invocations.S, invocations.M, invocations.L)


def test_flops_and_bytes_of_a_matrix_product():
    made = ready("mm")
    out = made.call()
    inner = made.flops / (2 * out.numel())
    assert inner == int(inner) > 1
    rows, columns = out.shape
    assert made.moved == 4 * (rows * inner + inner * columns + rows * columns)


def test_views_move_nothing():
    assert ready("transpose").moved == 0


def test_a_wrong_operator_is_refused(monkeypatch):
    entry = op_db()["exp"]
    monkeypatch.setattr(entry, "op", lambda data: torch.exp(data) * 1.01)
    with pytest.raises(Refused, match="differs from the reference"):
        ready("exp")


def test_an_operator_without_a_reference_is_held_against_double_precision(monkeypatch):
    entry = op_db()["cumsum"]
    monkeypatch.setattr(entry, "ref", None)
    assert "double precision" in ready("cumsum").notes[1]

    def rounded(data: torch.Tensor, dim: int, **rest: object) -> torch.Tensor:
        return torch.cumsum(data.to(torch.bfloat16).to(data.dtype) if data.dtype is torch.float32 else data, dim)

    monkeypatch.setattr(entry, "op", rounded)
    with pytest.raises(Refused, match="differs from the reference"):
        ready("cumsum")


def test_near_a_pole_as_much_is_allowed_as_rounding_the_inputs_changes(monkeypatch):
    assert "one rounding of its inputs" in ready("polygamma.polygamma_n_1", size="medium").notes[1]
    entry = op_db()["polygamma.polygamma_n_1"]
    plain = entry.op
    monkeypatch.setattr(entry, "op", lambda data, n: plain(data, n) * (1.1 if data.dtype is torch.float32 else 1))
    with pytest.raises(Refused, match="differs from the reference"):
        ready("polygamma.polygamma_n_1", size="medium")


@pytest.mark.parametrize("name", ["svd", "linalg.svd", "linalg.eig", "linalg.eigh"])
def test_vectors_of_any_sign_are_checked(name, monkeypatch):
    assert ready(name).notes[1].startswith("checked against")
    entry = op_db()[name]
    plain = entry.op

    def wrong(data: torch.Tensor, *args: object, **kwargs: object) -> tuple[torch.Tensor, ...]:
        first, *rest = plain(data, *args, **kwargs)
        return first * (1.1 if data.dtype is torch.float32 else 1), *rest

    monkeypatch.setattr(entry, "op", wrong)
    with pytest.raises(Refused, match="differs from the reference"):
        ready(name)


def test_a_wrong_gradient_is_refused(monkeypatch):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, data):
            return data.sin()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * (1 if gradient.dtype is torch.float32 else 2)

    monkeypatch.setattr(op_db()["sin"], "op", Wrong.apply)
    with pytest.raises(Refused, match="gradient of sin"):
        ready("sin", "backward")


def test_random_operators_are_checked_by_shape():
    assert "random" in ready("bernoulli").notes[1]
    assert "random" in ready("normal").notes[1]


def test_what_cannot_be_done_is_said():
    with pytest.raises(TesseraError, match=r"did you mean .*softmax"):
        opinfo.cases(["softmaxx"])
    with pytest.raises(TesseraError, match="unknown size"):
        opinfo.cases(["sin"], size=["large"])
    with pytest.raises(Refused, match="does not differentiate"):
        ready("argmax", "backward")
    with pytest.raises(Refused, match="no such dtype"):
        ready("linalg.svd", dtype="bfloat16")


def test_bitwise_operators_come_in_their_own_dtype():
    (case,) = opinfo.cases(["bitwise_and"], size=["small"], passes=["forward", "backward"])
    assert case.params["dtype"] == "int64"
    assert opinfo.ready(case).call().dtype is torch.int64


def test_a_record_says_which_sample_and_how_it_was_checked():
    (case,) = opinfo.cases(["mm"], size=["small"], passes=["forward"])
    worker = Worker(rank=0, size=1, spawn="inline", cpus=(), threads=1, sync=ALONE)
    record = run_case(worker, case, Sampling(budget=0.05))
    assert record.status == "ok"
    assert record.metrics["gflops"].value > 0
    assert record.notes[0].startswith("OpInfo sample")
    assert record.notes[1].startswith("checked against")


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "expecttest", None)
    op_db.cache_clear()
    try:
        with pytest.raises(TesseraError, match=r"tessera\[opinfo\]"):
            op_db()
    finally:
        monkeypatch.undo()
        op_db.cache_clear()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", ["small", "medium"])
@pytest.mark.parametrize(("which", "least"), [("forward", 675), ("backward", 520)])
def test_nearly_all_entries_run(which, least, size, capsys):
    refused: dict[str, str] = {}
    ran = 0
    for case in opinfo.cases(["*"], size=[size], passes=[which]):
        if case.params["pass"] != which or (which == "backward" and not index()[case.name].differentiable):
            continue
        try:
            opinfo.ready(case)
            ran += 1
        except Refused as error:
            refused[case.name] = str(error)
    with capsys.disabled():
        print(f"\n{size} {which}: {ran} run, {len(refused)} refused")
        for name, reason in refused.items():
            print(f"  {name}: {reason}")
    assert ran >= least
