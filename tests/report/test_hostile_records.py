"""Tests of the page of records of other people: no path of a record is opened, and no plan of its numbers is made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tessera.cli.main import main
from tessera.results.metrics import Metric
from tessera.results.record import Case, Record
from tessera.results.store import Store

pytestmark = pytest.mark.timeout(60)
CONV = {"image_size": 14, "in_channels": 32, "out_channels": 32, "kernel": 3, "machine": "wormhole-n150"}
HALO = {"image_size": 16, "kernel": 3, "slice_method": "vertical", "num_spatial_parts": 2, "in_channels": 4}


@pytest.mark.parametrize(
    ("feature", "name", "params"),
    [
        ("conv", "conv2d", {**CONV, "machine": "pipe.toml"}),
        ("conv", "conv2d", {**CONV, "machine": "/dev/zero"}),
        ("conv", "conv2d", {**CONV, "image_size": 2**40}),
        ("conv", "conv2d", {**CONV, "batch_size": 2**62}),
        ("conv", "conv2d", {**CONV, "kernel": "many"}),
        ("conv", "network", {"batch_size": "sixteen", "machine": 5}),
        ("halo", "exchange", {**HALO, "num_spatial_parts": 2**31}),
        ("halo", "exchange", {**HALO, "image_size": [2**62, 2**62]}),
        ("halo", "exchange", {**HALO, "num_spatial_parts": "two"}),
        ("halo", "exchange", {"image_size": {}}),
        ("phases", "chain", {"schedule": 5, "num_layers": 2**62}),
        ("infer", "throughput", {"batch_size": [], "model": 7}),
        ("ops", "add", {"backend": ["a"], "size": {}, "pass": None}),
        ("ab", "add", {}),
        ("nothing", "known", {"a": 1}),
    ],
)
def test_a_page_of_odd_cases_is_written_at_once(
    feature: str, name: str, params: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.toml")
    metrics = {
        key: Metric(value)
        for key, value in {"time": 1.0, "wrong": float("nan"), "pcc": -1e300, "images_per_second": 0.0}.items()
    }
    record = Record(case=Case(feature=feature, name=name, params=params), metrics=metrics, predicted=metrics)
    with Store("s.sqlite") as store:
        store.add(store.start_run("one"), record)
    assert main(["report", "one", "--store", "s.sqlite", "-o", "page.html"]) == 0
    assert "<html" in Path("page.html").read_text()
