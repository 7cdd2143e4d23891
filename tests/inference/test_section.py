"""Tests of the inference section of the report: a part appears only if there are records for it."""

from __future__ import annotations

import random

import pytest

from tessera.inference.cases import cases
from tessera.inference.section.section import build_section
from tessera.measure.samples import Samples
from tessera.report.blocks import Card, Cards, Plot, Section, Table
from tessera.report.page import build_page
from tessera.report.runs import RunView
from tessera.results.record import Metric, Record

ENVIRONMENT = {"cpu": "AMD EPYC 9B14", "cores": 2, "fingerprint": "3f9ab2c41d77"}
PEAK = 22.0
REMARKS = ["operators timed by hooks", "operators 90 ms of 100 ms for the whole batch: 10 % is between operators"]


def make_record(rate: float, latency: float, *, efficiency: float | None = None, **axes) -> Record:
    (case,) = cases(**{axis: [value] for axis, value in {"model": "resnet50", **axes}.items()})
    values = tuple(rate * random.gauss(1, 0.01) for _ in range(20))
    replicas = int(axes.get("num_replicas", 1))
    ranks = tuple(tuple(value / replicas for value in values) for _ in range(replicas)) if replicas > 1 else ()
    metrics = {
        "throughput": Metric(rate, "images/s", "higher"),
        **{f"latency_{name}": Metric(latency, "s", "lower") for name in ("min", "mean", "p50", "p90", "p99", "max")},
        "first_batch": Metric(2.5, "s", "lower"),
        "peak_memory": Metric(3e8, "B", "lower"),
        "peak_fraction": Metric(rate / PEAK, "", "higher"),
        "top1_agreement": Metric(1.0, "", "higher"),
    }
    if efficiency is not None:
        metrics |= {"efficiency": Metric(efficiency), "efficiency_low": Metric(efficiency - 0.01)}
        metrics |= {"efficiency_high": Metric(efficiency + 0.01)}
    return Record(
        case=case,
        unit="images/s",
        direction="higher",
        launches=(Samples(values=values, ranks=ranks),),
        metrics=metrics,
        predicted={"throughput": Metric(PEAK, "images/s", "higher")},
        environment=ENVIRONMENT,
        seconds=3.0,
    )


def make_operator_record(engine: str = "torch-eager") -> Record:
    (case,) = cases(model=["resnet50"], engine=[engine], by_operator=[True])
    shares = [("convolution 3x3", 0.6), ("convolution 1x1", 0.3), ("relu", 0.07), ("add", 0.03)]
    kinds = [
        {"name": name, "calls": 3, "seconds": part / 10, "share": part, "flops": 1e9, "moved": 1e6, "roofline": 0.5}
        for name, part in shares
    ]
    layers = [{**one, "name": f"layer{number}", "flops": None, "roofline": None} for number, one in enumerate(kinds)]
    return Record(
        case=case,
        launches=(Samples(values=(0.1,) * 10),),
        metrics={"time": Metric(0.1, "s"), "operators": Metric(0.09, "s"), "between": Metric(0.01, "s")},
        details={"kinds": kinds, "layers": layers, "remarks": REMARKS},
        environment=ENVIRONMENT,
        notes=tuple(REMARKS),
    )


def make_server_record() -> Record:
    (case,) = cases(model=["resnet50"], mode=["server"], max_latency=[0.1])
    trials = [
        {"rate": rate, "questions": 80, "achieved": rate, "latency_p99": rate / 100, "held": rate < 10}
        for rate in (8.0, 12.0, 9.0)
    ]
    return Record(
        case=case,
        unit="images/s",
        direction="higher",
        launches=(Samples(values=(9.0,)),),
        metrics={"throughput": Metric(9.0, "images/s"), "max_latency": Metric(0.1, "s"), "held": Metric(1.0)},
        chosen={"load_generator": "Tessera's own arrivals"},
        details={"trials": trials},
        environment=ENVIRONMENT,
    )


def make_all_records() -> list[Record]:
    engines = {"torch-eager": 13.6, "onnxruntime": 20.5, "openvino": 20.3}
    swept = [
        make_record(rate * (1 + 0.01 * step), batch / rate, engine=engine, batch_size=batch)
        for engine, rate in engines.items()
        for step, batch in enumerate((1, 4, 16))
    ]
    doubled = [
        make_record(1.95 * rate, 8 / rate, engine=engine, batch_size=8, num_replicas=2, efficiency=0.975)
        for engine, rate in engines.items()
    ]
    single = [make_record(rate, 8 / rate, engine=engine, batch_size=8) for engine, rate in engines.items()]
    others = [make_operator_record(), make_operator_record("onnxruntime"), make_server_record()]
    return [*swept, *doubled, *single, *others]


def make_run_view(records, name: str = "r") -> RunView:
    return RunView(name=name, created="2026-03-01T12:00:00+00:00", command="tessera suite quick", records=records)


def collect_blocks(block: Section, kind: type) -> list:  # type: ignore[type-arg]
    inside = [b for part in block.blocks if isinstance(part, Section) for b in collect_blocks(part, kind)]
    return [part for part in block.blocks if isinstance(part, kind)] + inside


def get_titles(block: Section) -> list[str]:
    return [part.title for part in block.blocks if isinstance(part, Section)]


@pytest.fixture(autouse=True)
def fix_seed() -> None:
    random.seed(7)


def test_every_kind_of_record_has_its_part_in_the_section():
    built = build_section([make_run_view(make_all_records())])
    assert get_titles(built) == [
        "Throughput against latency",
        "Batch size",
        "Replicas",
        "Servers",
        "Operators' shares",
        "All records",
    ]
    (cards,) = collect_blocks(built, Cards)
    assert cards.cards == [Card("resnet50", "40.0 images/s", cards.cards[0].remark)]
    assert "onnxruntime 32.32, 2 x 1, batch 8" in cards.cards[0].remark


def test_the_pareto_front_contains_only_undominated_records():
    built = build_section([make_run_view(make_all_records())])
    plot = next(plot for plot in collect_blocks(built, Plot) if "the line joins" in plot.caption)
    line = plot.figure["data"][0]
    assert line["x"] == sorted(line["x"])
    assert line["y"] == sorted(line["y"]), "more images cost more time"
    table = next(table for table in collect_blocks(built, Table) if table.caption == "All measured settings")
    assert 0 < sum(row[-1] == "yes" for row in table.rows) < len(table.rows)


def test_cases_of_a_curve_differ_only_in_its_axis():
    built = build_section([make_run_view(make_all_records())])
    batch, replicas = (
        next(part for part in built.blocks if isinstance(part, Section) and part.title == title)
        for title in ("Batch size", "Replicas")
    )
    assert [trace["x"] for trace in collect_blocks(batch, Plot)[0].figure["data"]] == [[1, 4, 8, 16]] * 3
    assert [trace["x"] for trace in collect_blocks(replicas, Plot)[0].figure["data"]] == [[1, 2]] * 3


def test_without_records_there_is_no_plot():
    (case,) = cases(model=["resnet50"])
    broken = Record(case=case, status="failed", reason="rank 1 of 2 died", environment=ENVIRONMENT)
    built = build_section([make_run_view([broken])])
    assert get_titles(built) == ["All records"]
    assert build_section([make_run_view([])]).blocks == []


def test_the_report_page_contains_the_section():
    text = build_page(
        [make_run_view(make_all_records(), "before"), make_run_view(make_all_records(), "after")],
        {"infer": build_section},
    )
    assert "Throughput against latency" in text
    assert "Of 2 runs, the newest is shown" in text
