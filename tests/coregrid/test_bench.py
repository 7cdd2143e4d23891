"""Tests of measured core-grid cases: output, memory and bytes equal the prediction; and the report section."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tessera.coregrid.bench import run_case
from tessera.coregrid.cases import cases
from tessera.coregrid.section import section
from tessera.errors import Refused
from tessera.geometry import Mesh
from tessera.launch.worker import RunContext
from tessera.machine import load_machine
from tessera.measure.samples import Sampling
from tessera.report.blocks import Picture, Section, Table
from tessera.report.runs import RunView
from tessera.results.record import Record

SAMPLING = Sampling(warmup=1, iterations=2)
SMALL = {"image_size": [12], "in_channels": [40], "out_channels": [48], "batch_size": [2]}


def measure(**axes: Any) -> list[Record]:
    return [run_case(RunContext(), case, SAMPLING) for case in cases(**{**SMALL, **axes})]


@pytest.mark.parametrize("layout", ["search", "auto", "HEIGHT", "BLOCK", "WIDTH"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bfloat8_b"])
@pytest.mark.parametrize("grid", ["", "1x2", "2x3"])
def test_memory_and_bytes_are_as_predicted(layout: str, dtype: str, grid: str) -> None:
    (record,) = measure(shard_layout=[layout], dtype=[dtype], weights_dtype=[dtype], activation=["relu"], grid=[grid])
    assert record.metrics["wrong"].value == 0
    for name in ("high_water", "local", "remote", "multicast", "global"):
        assert record.metrics[name].value == record.predicted[name].value, name
    assert record.predicted["chip_time"].value > 0


def test_slices_and_settings() -> None:
    sliced, freed, striding = (
        measure(**axes)[0]
        for axes in (
            {"num_slices": [3], "shard_layout": ["HEIGHT"]},
            {"deallocate_activation": [True], "shard_layout": ["BLOCK"]},
            {"stride": [2], "halo_mode": ["exact"], "kernel": [1], "padding": [0]},
        )
    )
    assert sliced.chosen["slices"] == 3
    assert all(record.metrics["wrong"].value == 0 for record in (sliced, freed, striding))


@pytest.mark.parametrize("choice", ["search", "auto", "HEIGHT"])
@pytest.mark.parametrize("grid", ["", "1x2"])
def test_a_small_machine_takes_slices(choice: str, grid: str, tmp_path: Path) -> None:
    small = replace(load_machine("wormhole-n150"), name="small", workers=Mesh(2, 2), local_memory=60_000)
    small.write_file(tmp_path / "small.toml")
    options = {} if choice == "search" else {"num_slices": [24 if grid else 12]}
    (record,) = measure(
        machine=[str(tmp_path / "small.toml")],
        image_size=[24],
        in_channels=[32],
        shard_layout=[choice],
        grid=[grid],
        **options,
    )
    assert record.chosen["cores"] <= (2 if grid else 4)
    assert record.chosen["slices"] > 1
    assert record.metrics["wrong"].value == 0
    for name in ("local", "remote", "multicast", "global"):
        assert record.metrics[name].value == record.predicted[name].value, name
    assert record.metrics["high_water"].value <= small.local_memory


def test_convolutions_that_do_not_fit_are_refused() -> None:
    with pytest.raises(Refused, match="HEIGHT does not fit: needs"):
        measure(image_size=[112], batch_size=[8], in_channels=[64], out_channels=[64], shard_layout=["HEIGHT"])


def test_network_record_has_predicted_and_published_rates() -> None:
    (case,) = cases(["network"], network=["resnet18"], batch_size=[1])
    record = run_case(RunContext(), case, Sampling(warmup=0, iterations=1))
    assert record.predicted["images_per_second"].value > 0
    assert "images_per_second" not in record.metrics  # no published rate


def view(records: list[Record]) -> RunView:
    return RunView(name="one", created="", command="", records=records)


def test_the_section() -> None:
    records = measure(shard_layout=["search", "WIDTH"])
    result = section([view(records)])
    names = [block.title for block in result.blocks if isinstance(block, Section)]
    assert names == [
        "Shards and halos",
        "Memory of a core",
        "Timeline of the busiest core",
        "Candidates of the search",
        "All records",
    ]
    inner = [block for part in result.blocks if isinstance(part, Section) for block in part.blocks]
    assert sum(isinstance(block, Picture) for block in inner) == 3
    assert sum(isinstance(block, Table) for block in inner) == 2


def test_section_without_records() -> None:
    assert section([view([])]).blocks == []
