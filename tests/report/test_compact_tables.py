"""Golden compact tables: short names, sizes and passes as columns, noisy figures and figures without meaning."""

from __future__ import annotations

import io

from tessera.measure.samples import Samples
from tessera.report.compact_tables import write_compact_tables
from tessera.results.metrics import make_metrics
from tessera.results.record import Case, Record


def make_record(feature: str, name: str, value: float, *, noise: float = 0.0, **fields: object) -> Record:
    metrics = fields.pop("metrics", {})
    launches = tuple(Samples(values=(value * factor,) * 9) for factor in (1 - noise, 1, 1 + noise))
    return Record(
        case=Case(feature=feature, name=name, params=fields),
        launches=launches,
        metrics=make_metrics(metrics, feature),  # type: ignore[arg-type]
    )


def write(records: list[Record]) -> str:
    stream = io.StringIO()
    write_compact_tables(records, stream)
    return stream.getvalue()


def test_sizes_and_passes_are_columns() -> None:
    records = [
        make_record("ops", name, seconds * scale, dtype="float32", backend="torch", size=size, **{"pass": which})
        for name, seconds in (("add", 2e-6), ("softmax", 8e-6))
        for size, scale in (("small", 1), ("medium", 200))
        for which in ("forward", "backward")
    ]
    params = records[0].case.params
    records.append(make_record("ops", "add", 1e-6, noise=0.3, **{**params, "backend": "numpy"}))
    broken = Case(feature="ops", name="sort", params=params)
    records.append(Record(case=broken, status="timed_out", reason="after 9 s"))
    assert (
        write(records)
        == """\
ops: dtype float32; else backend torch

                  small      small    medium     medium
  ops           forward   backward   forward   backward
 ───────────────────────────────────────────────────────
  add           2.00 µs    2.00 µs    400 µs     400 µs
  softmax       8.00 µs    8.00 µs   1.60 ms    1.60 ms
  add numpy    ~1.00 µs
  sort        timed out

~ noisy: 1 of 9 figures vary by more than ± 5% or were interrupted
"""
    )


def test_shares_below_the_noise_are_not_printed() -> None:
    shared = {"image_size": 256, "num_spatial_parts": 2}
    wild = {"hidden": 19.21, "hidden_low": -40.0, "hidden_high": 80.0, "efficiency": 0.52}
    good = {"hidden": 0.8, "hidden_low": 0.7, "hidden_high": 0.9, "efficiency": 0.61}
    records = [
        make_record("halo", "exchange", 17e-6, metrics={"copy": 5e-6}, **shared),
        make_record("halo", "compute", 12e-3, metrics=wild, overlap="split", **shared),
        make_record("halo", "compute", 11e-3, metrics=good, overlap="recompute", **shared),
    ]
    assert (
        write(records)
        == """\
halo: image size 256, num spatial parts 2

  halo                   time      ±      copy              hidden   efficiency
 ───────────────────────────────────────────────────────────────────────────────
  exchange            17.0 µs   0.0%   5.00 µs
  compute split       12.0 ms   0.0%             n/a (below noise)        52.0%
  compute recompute   11.0 ms   0.0%                         80.0%        61.0%

"""
    )


def test_the_quick_suite_fits_100_columns() -> None:
    from tessera.suites.suite import load_suite

    metrics = {"copy": 5e-6, "uncut": 1e-3, "hidden": 0.5, "efficiency": 0.5}
    records = [
        Record(
            case=case,
            launches=(Samples(values=(0.123456,) * 9),),
            unit="images/s" if case.feature == "infer" else "s",
            metrics=make_metrics(metrics, case.feature) if case.feature == "halo" else {},
        )
        for case in load_suite("quick").cases
    ]
    lines = write(records).splitlines()
    assert len(lines) < 90
    assert max(map(len, lines)) <= 100
    operators = lines[: next(number for number, line in enumerate(lines) if line.startswith("halo"))]
    assert max(map(len, operators)) <= 80
    assert not any("[" in line or "=" in line for line in lines)


def test_an_interval_wider_than_the_figure_is_not_a_percentage() -> None:
    launches = tuple(Samples(values=(seconds,) * 9) for seconds in (1e-3, 1.1e-3, 50e-3))
    record = Record(case=Case(feature="halo", name="exchange"), launches=launches)
    assert ">100%" in write([record])
    assert "2227" not in write([record])
