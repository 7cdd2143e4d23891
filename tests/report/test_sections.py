import random
import statistics
from dataclasses import replace

import pytest

from tessera.measure.samples import Samples
from tessera.report.attention import attention_section, noisy
from tessera.report.blocks import Cards, Cell, Facts, Plot, Section, Table, Text
from tessera.report.comparison import against_first, comparison_cards, comparison_section
from tessera.report.environment import environment_section
from tessera.report.generic import generic_section, split_params
from tessera.report.measured import measured
from tessera.report.medians import MOST_ROWS
from tessera.report.naming import short_names
from tessera.report.prediction import prediction_section
from tessera.report.summary import summary_section
from tests.report.synthetic import broken, many, plausible, record, run


def texts(table: Table) -> list[list[str]]:
    return [[cell.text if isinstance(cell, Cell) else cell for cell in row] for row in table.rows]


def found(section: Section, kind: type) -> list:  # type: ignore[type-arg]
    """All blocks of a kind, also those of sections inside."""
    inside = [b for block in section.blocks if isinstance(block, Section) for b in found(block, kind)]
    return [block for block in section.blocks if isinstance(block, kind)] + inside


def table(section: Section, caption: str) -> Table:
    return next(t for t in found(section, Table) if t.caption.startswith(caption))


def test_the_bounds_of_several_launches_hold_every_launchs_median() -> None:
    several = record(launches=3, count=30)
    figures = measured(several)
    assert figures is not None
    assert figures.low is not None
    assert figures.high is not None
    assert figures.low <= figures.median <= figures.high
    assert (figures.samples, figures.launches) == (90, 3)
    assert figures.noise == []
    medians = sorted(statistics.median(launch.values) for launch in several.launches)
    assert (figures.low, figures.median, figures.high) == pytest.approx(tuple(medians))


def test_launches_that_disagree_are_noise_however_sure_each_is_of_itself() -> None:
    calm = record(launches=1, spread=0.001).launches[0]
    off = replace(calm, values=tuple(1.3 * value for value in calm.values))
    figures = measured(replace(record(), launches=(calm, calm, off)))
    assert figures is not None
    assert "the 3 launches agree to ± 15% only" in figures.noise[0]


def test_a_figure_is_noisy_for_a_wide_interval_few_samples_or_many_interruptions() -> None:
    quiet = record(spread=0.01)
    few = replace(quiet, launches=(Samples(values=(1.0, 2.0, 3.0)),))
    wide = replace(quiet, launches=(Samples(values=tuple(random.uniform(1, 2) for _ in range(12))),))
    one = quiet.launches[0]
    interrupted = replace(quiet, launches=(replace(one, switches=(1,) * len(one.values)),))
    runs = [run("r", [quiet, few, wide, interrupted])]
    reasons = ["; ".join(figures.noise) for _, _, figures in noisy(runs)]
    assert len(reasons) == 3
    assert "too few" in reasons[0]
    assert "known to ±" in reasons[1]
    assert "100% of the samples were interrupted" in reasons[2]


def test_the_summary_counts_every_status_and_gives_every_reason() -> None:
    section = summary_section([plausible()])
    cards = {card.label: card.figure for card in found(section, Cards)[0].cards}
    assert cards == cards | {"Failed": "1", "Timed out": "1", "Refused": "1", "Noisy": "2"}
    reasons = {row[-1] for row in texts(table(section, "Cases without"))}
    assert len(reasons) == 3
    assert any("shape '[2, 3]'" in reason for reason in reasons)


def test_a_clean_run_is_said_to_be_clean() -> None:
    section = attention_section([run("clean", [record(spread=0.001)])])
    assert [type(block) for block in section.blocks] == [Text]


def test_the_environment_is_shown_whatever_it_holds() -> None:
    odd = {"cpu": "A", "libraries": {"torch": "1", "deep": {"er": [1, 2]}}, "new": None, "weird": {"x": {}}}
    section = environment_section([run("r", [replace(record(), environment=odd)])])
    facts = dict(pair for block in found(section, Facts) for pair in block.facts)
    assert facts == {"Processor": "A", "PyTorch": "1", "libraries.deep.er": "1, 2"}
    assert environment_section([run("r", [replace(record(), environment={})])]).intro


def test_what_differs_between_environments_is_a_table() -> None:
    before = record()
    after = replace(before, environment={**before.environment, "threads": 2})
    section = environment_section([run("a", [before]), run("b", [after])])
    assert texts(table(section, "What differs")) == [["threads", "1", "2"]]


def test_parameters_are_split_into_varying_and_fixed() -> None:
    cases = [record(size=size, dtype="float32").case for size in (1, 2)]
    assert split_params(cases) == (["size"], {"dtype": "float32"})


def test_a_feature_without_a_section_gets_all_its_records_and_a_plot() -> None:
    records = [record(size=n, dtype="float32") for n in range(5)] + [broken("failed", size=9, dtype="float32")]
    section = generic_section("ops")([run("r", records)])
    assert "dtype = float32" in section.intro
    assert len(table(section, "Every record").rows) == len(records)
    (plot,) = found(section, Plot)
    (trace,) = plot.figure["data"]
    assert trace["type"] == "bar"
    assert len(trace["x"]) == 5
    bars = zip(trace["error_x"]["array"], trace["error_x"]["arrayminus"], strict=True)
    assert all(above >= 0 and below >= 0 for above, below in bars)


def test_cases_of_many_sizes_are_dots_on_a_logarithmic_axis() -> None:
    section = generic_section("ops")([run("r", [record(median=10.0**-n, size=n) for n in range(6)])])
    (plot,) = found(section, Plot)
    assert plot.figure["data"][0]["type"] == "scatter"
    assert plot.figure["layout"]["xaxis"]["type"] == "log"


def test_many_cases_share_the_row_of_their_name() -> None:
    view = many(20 * MOST_ROWS, features=["ops"])
    (plot,) = found(generic_section("ops")([view]), Plot)
    assert set(plot.figure["data"][0]["y"]) == {r.case.name for r in view.records}


def test_units_are_never_mixed_in_one_plot() -> None:
    records = [record(size=1), replace(record(size=2), unit="images/s", direction="higher")]
    plots = found(generic_section("ops")([run("r", records)]), Plot)
    assert [plot.figure["layout"]["xaxis"]["ticksuffix"] for plot in plots] == ["s", "images/s"]


def test_predictions_stand_beside_measurements() -> None:
    expected = [record(size=n, predicted=1e-3) for n in range(4)]
    section = prediction_section([run("r", [*expected, record(size=9)])])
    assert section is not None
    assert len(table(section, "Every prediction").rows) == 4
    assert prediction_section([run("r", [record()])]) is None


def test_a_planted_change_is_found_against_the_first_run() -> None:
    def launch(scale: float) -> list:  # type: ignore[type-arg]
        slow = [record("slow", median=1e-3 * scale, spread=0.002, launches=6, n=n) for n in range(4)]
        return slow + [record("same", median=1e-3, spread=0.002, launches=6, n=n) for n in range(12)]

    runs = [run("base", launch(1.0)), run("new", [*launch(1.3), record("fresh", launches=6)])]
    compared = against_first(runs, 0.05)
    section = comparison_section(runs[0], compared)
    rows = texts(table(section, "Every compared case"))
    assert {row[0].partition("[")[0] for row in rows if row[2] == "slower"} == {"slow"}
    assert [card.figure for card in comparison_cards(compared)] == ["4", "0"]
    assert [row[0] for row in texts(table(section, "Not compared"))] == ["fresh"]
    (plot,) = found(section, Plot)
    slower = next(trace for trace in plot.figure["data"] if trace["name"] == "slower")
    assert all(0.2 < change < 0.4 for change in slower["x"])


def test_three_runs_give_two_comparisons() -> None:
    runs = [plausible(name, launches=3) for name in ("a", "b", "c")]
    section = comparison_section(runs[0], against_first(runs, 0.03))
    assert [part.title for part in section.blocks if isinstance(part, Section)] == [
        "b against a",
        "c against a",
    ]


def test_names_are_short_and_tell_the_cases_of_a_feature_apart() -> None:
    cases = [record(seed=0, size=size, dtype="float32") for size in (1, "1", 2)]
    other = record("exchange", feature="halo", ranks=2)
    names = short_names([run("r", [*cases, other])])
    assert [names[r.case.key].short for r in cases] == ["add[size=1]", 'add[size="1"]', "add[size=2]"]
    assert str(names[other.case.key]) == "halo exchange"


def test_two_noisy_runs_are_not_called_alike() -> None:
    runs = [run(name, [record(n=n) for n in range(3)]) for name in ("a", "b")]
    section = comparison_section(runs[0], against_first(runs, 0.03))
    (notice,) = found(section, Text)
    assert notice.tone == "warn"
    assert "3 of 3 cases are unresolved" in notice.text
