"""Tests of the report sections: summary, environment, generic sections, comparisons and predictions."""

import random
import statistics
from dataclasses import replace

import pytest

from tessera.measure.samples import Samples
from tessera.report.blocks import Cards, Cell, Facts, Plot, Section, Table, Text
from tessera.report.comparison import build_comparison_cards, build_comparison_section, compare_with_first
from tessera.report.environment import build_environment_section
from tessera.report.feature_section import make_generic_section
from tessera.report.measured import summarize_record
from tessera.report.naming import name_cases_of_runs
from tessera.report.plots import MAX_CASE_ROWS
from tessera.report.prediction import build_prediction_section
from tessera.report.record_tables import split_params
from tessera.report.summary import build_attention_section, build_details_section, build_summary_section, iter_noisy
from tests.report.synthetic import make_broken_record, make_long_run, make_plausible_run, make_record, make_run_view


def read_texts(table: Table) -> list[list[str]]:
    return [[cell.text if isinstance(cell, Cell) else cell for cell in row] for row in table.rows]


def find_blocks(section: Section, kind: type) -> list:  # type: ignore[type-arg]
    """Return all blocks of a type in a section, including blocks of nested sections."""
    inside = [b for block in section.blocks if isinstance(block, Section) for b in find_blocks(block, kind)]
    return [block for block in section.blocks if isinstance(block, kind)] + inside


def find_table(section: Section, caption: str) -> Table:
    return next(t for t in find_blocks(section, Table) if t.caption.startswith(caption))


def test_the_bounds_of_several_launches_cover_all_medians() -> None:
    several = make_record(launches=3, count=30)
    figures = summarize_record(several)
    assert figures is not None
    assert figures.low is not None
    assert figures.high is not None
    assert figures.low <= figures.median <= figures.high
    assert (figures.samples, figures.launches) == (90, 3)
    assert figures.noise == []
    medians = sorted(statistics.median(launch.values) for launch in several.launches)
    assert (figures.low, figures.median, figures.high) == pytest.approx(tuple(medians))


def test_launches_that_disagree_are_reported_as_noise() -> None:
    quiet = make_record(launches=1, spread=0.001).launches[0]
    off = replace(quiet, values=tuple(1.3 * value for value in quiet.values))
    figures = summarize_record(replace(make_record(), launches=(quiet, quiet, off)))
    assert figures is not None
    assert "the medians of 3 launches vary by ± 15%" in figures.noise[0]


def test_a_result_is_noisy_for_a_wide_interval_few_samples_or_many_interruptions() -> None:
    quiet = make_record(spread=0.01)
    few = replace(quiet, launches=(Samples(values=(1.0, 2.0, 3.0)),))
    wide = replace(quiet, launches=(Samples(values=tuple(random.uniform(1, 2) for _ in range(12))),))
    launch = quiet.launches[0]
    interrupted = replace(quiet, launches=(replace(launch, switches=(1,) * len(launch.values)),))
    runs = [make_run_view("r", [quiet, few, wide, interrupted])]
    reasons = ["; ".join(figures.noise) for _, _, figures in iter_noisy(runs)]
    assert len(reasons) == 3
    assert "too few" in reasons[0]
    assert "the interval of the median is ±" in reasons[1]
    assert "100% of the samples were interrupted" in reasons[2]


def test_the_summary_counts_every_status_and_gives_every_reason() -> None:
    section = build_summary_section([make_plausible_run()])
    cards = {card.label: card.figure for card in find_blocks(section, Cards)[0].cards}
    assert cards == cards | {"Failed": "1", "Timed out": "1", "Refused": "1", "Noisy": "2"}
    details = build_details_section([make_plausible_run()])
    reasons = {row[-1] for row in read_texts(find_table(details, "Cases without"))}
    assert len(reasons) == 3
    assert any("shape '[2, 3]'" in reason for reason in reasons)


def test_a_run_without_problems() -> None:
    section = build_attention_section([make_run_view("clean", [make_record(spread=0.001)])])
    assert [type(block) for block in section.blocks] == [Text]


def test_the_environment_may_have_any_fields() -> None:
    odd = {"cpu": "A", "libraries": {"torch": "1", "deep": {"er": [1, 2]}}, "new": None, "weird": {"x": {}}}
    section = build_environment_section([make_run_view("r", [replace(make_record(), environment=odd)])])
    facts = dict(pair for block in find_blocks(section, Facts) for pair in block.facts)
    assert facts == {"Processor": "A", "PyTorch": "1", "libraries.deep.er": "1, 2"}
    assert build_environment_section([make_run_view("r", [replace(make_record(), environment={})])]).intro


def test_differences_between_environments_are_a_table() -> None:
    before = make_record()
    after = replace(before, environment={**before.environment, "threads": 2})
    section = build_environment_section([make_run_view("a", [before]), make_run_view("b", [after])])
    assert read_texts(find_table(section, "Differences")) == [["threads", "1", "2"]]


def test_parameters_are_split_into_varying_and_fixed() -> None:
    cases = [make_record(size=size, dtype="float32").case for size in (1, 2)]
    assert split_params(cases) == (["size"], {"dtype": "float32"})


def test_a_feature_without_a_section_gets_all_its_records_and_a_plot() -> None:
    records = [make_record(size=n, dtype="float32") for n in range(5)] + [
        make_broken_record("failed", size=9, dtype="float32")
    ]
    section = make_generic_section("ops")([make_run_view("r", records)])
    assert "dtype = float32" in section.intro
    assert len(find_table(section, "Every record").rows) == len(records)
    (plot,) = find_blocks(section, Plot)
    (trace,) = plot.figure["data"]
    assert trace["type"] == "bar"
    assert len(trace["x"]) == 5
    bars = zip(trace["error_x"]["array"], trace["error_x"]["arrayminus"], strict=True)
    assert all(above >= 0 and below >= 0 for above, below in bars)


def test_cases_of_many_sizes_are_dots_on_a_logarithmic_axis() -> None:
    section = make_generic_section("ops")(
        [make_run_view("r", [make_record(median=10.0**-n, size=n) for n in range(6)])]
    )
    (plot,) = find_blocks(section, Plot)
    assert plot.figure["data"][0]["type"] == "scatter"
    assert plot.figure["layout"]["xaxis"]["type"] == "log"


def test_many_cases_of_a_name_share_a_row() -> None:
    view = make_long_run(20 * MAX_CASE_ROWS, features=["ops"])
    (plot,) = find_blocks(make_generic_section("ops")([view]), Plot)
    assert set(plot.figure["data"][0]["y"]) == {r.case.name for r in view.records}


def test_units_are_never_mixed_in_one_plot() -> None:
    records = [make_record(size=1), replace(make_record(size=2), unit="images/s", direction="higher")]
    plots = find_blocks(make_generic_section("ops")([make_run_view("r", records)]), Plot)
    assert [plot.figure["layout"]["xaxis"]["ticksuffix"] for plot in plots] == ["s", "images/s"]


def test_predictions_are_shown_with_measurements() -> None:
    expected = [make_record(size=n, predicted=1e-3) for n in range(4)]
    section = build_prediction_section([make_run_view("r", [*expected, make_record(size=9)])])
    assert section is not None
    assert len(find_table(section, "Every prediction").rows) == 4
    assert build_prediction_section([make_run_view("r", [make_record()])]) is None


def test_a_known_change_is_detected_relative_to_the_first_run() -> None:
    def launch(scale: float) -> list:  # type: ignore[type-arg]
        slow = [make_record("slow", median=1e-3 * scale, spread=0.002, launches=6, n=n) for n in range(4)]
        return slow + [make_record("same", median=1e-3, spread=0.002, launches=6, n=n) for n in range(12)]

    runs = [make_run_view("base", launch(1.0)), make_run_view("new", [*launch(1.3), make_record("fresh", launches=6)])]
    compared = compare_with_first(runs, 0.05)
    section = build_comparison_section(runs[0], compared)
    rows = read_texts(find_table(section, "Every compared case"))
    assert {row[0].split()[0] for row in rows if row[2] == "slower"} == {"slow"}
    assert [card.figure for card in build_comparison_cards(compared)] == ["4", "0"]
    assert [row[0] for row in read_texts(find_table(section, "Not compared"))] == ["fresh"]
    (plot,) = find_blocks(section, Plot)
    slower = next(trace for trace in plot.figure["data"] if trace["name"] == "slower")
    assert all(0.2 < change < 0.4 for change in slower["x"])


def test_three_runs_give_two_comparisons() -> None:
    runs = [make_plausible_run(name, launches=3) for name in ("a", "b", "c")]
    section = build_comparison_section(runs[0], compare_with_first(runs, 0.03))
    assert [part.title for part in section.blocks if isinstance(part, Section)] == [
        "b against a",
        "c against a",
    ]


def test_names_are_short_and_unique_within_a_feature() -> None:
    cases = [make_record(seed=0, size=size, dtype="float32") for size in (1, "1", 2)]
    exchange = make_record("exchange", feature="halo", ranks=2)
    names = name_cases_of_runs([make_run_view("r", [*cases, exchange])])
    assert [names[r.case.key].words for r in cases] == ["add size 1", "add 1", "add size 2"]
    assert str(names[exchange.case.key]) == "halo exchange"


def test_two_noisy_runs_are_not_reported_as_equal() -> None:
    runs = [make_run_view(name, [make_record(n=n) for n in range(3)]) for name in ("a", "b")]
    section = build_comparison_section(runs[0], compare_with_first(runs, 0.03))
    (notice,) = find_blocks(section, Text)
    assert notice.tone == "warn"
    assert "3 of 3 cases are unresolved" in notice.text
