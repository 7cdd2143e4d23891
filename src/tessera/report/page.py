"""The report: one self-contained HTML page of one or more runs, built from their records alone.

The page makes no network requests: it contains its styles, its scripts and Plotly. Its content security policy allows
only the scripts that the page was created with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from html import escape
from importlib import resources
from pathlib import Path
from string import Template

from tessera import __version__
from tessera.errors import TesseraError, get_first_line
from tessera.files import replace_text
from tessera.report.blocks import Section, Statement
from tessera.report.comparison import build_comparison_cards, build_comparison_section, compare_with_first
from tessera.report.feature_section import make_generic_section
from tessera.report.prediction import build_prediction_section
from tessera.report.render import Renderer, make_anchor, make_content_policy
from tessera.report.runs import RunView, SectionBuilder, list_features
from tessera.report.summary import build_details_section, build_summary_section, format_minute

__all__ = ["RunView", "SectionBuilder", "build_document", "build_page", "write_page"]


def build_page(
    runs: Sequence[RunView],
    sections: Mapping[str, SectionBuilder],
    *,
    threshold: float = 0.03,
    findings: Sequence[Statement] = (),
) -> str:
    """Build the report page as HTML; `sections` maps each feature to the builder of its section.

    `findings` are the statements of the first screen.

    With several runs, the first run is the baseline. `threshold` is the smallest relative change that is reported.
    """
    assert runs, "a report requires at least one run"
    compared = compare_with_first(runs, threshold)
    parts = [build_summary_section(runs, build_comparison_cards(compared) if compared else (), findings)]
    if compared:
        parts.append(build_comparison_section(runs[0], compared))
    for feature in list_features(runs):
        parts.append(_build_section(feature, sections.get(feature), [run.filter_feature(feature) for run in runs]))
    if predicted := build_prediction_section(runs):
        parts.append(predicted)
    parts.append(build_details_section(runs))
    return build_document(parts, title=_format_title(runs), subtitle=_format_subtitle(runs))


# Errors of a section builder on records of other releases, or on records that were made up.
_RECORD_ERRORS = (TesseraError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def _build_section(feature: str, build: SectionBuilder | None, runs: Sequence[RunView]) -> Section:
    """Build the section of a feature; if its records do not have the expected values, their table alone."""
    generic = make_generic_section(feature)
    if build is None:
        return generic(runs)
    try:
        return build(runs)
    except _RECORD_ERRORS as error:
        section = generic(runs)
        why = f"Some records do not have the expected values ({get_first_line(error)}), so only their table is shown. "
        return replace(section, intro=why + section.intro)


def write_page(text: str, path: Path) -> None:
    """Write an HTML page to a file atomically."""
    target = path.resolve()
    if target.exists() and not target.is_file():
        # A rename would replace a special file, such as a device, by the page.
        raise _make_write_error(path, "it exists and is not a file")
    try:
        replace_text(target, text)
    except OSError as error:
        raise _make_write_error(path, error.strerror or str(error)) from None


def _make_write_error(path: Path, why: str) -> TesseraError:
    return TesseraError(f"cannot write the page: {why}", got=str(path), do="name another file with -o")


def build_document(parts: Sequence[Section], *, title: str, subtitle: str) -> str:
    """Build an HTML document from sections; the first section is the summary."""
    from plotly.offline import get_plotlyjs

    renderer = Renderer()
    names = _make_anchors(parts)
    theme, script, plotly = _read_asset("theme.js"), _read_asset("report.js"), get_plotlyjs()
    links = "".join(
        f'<li><a href="#{name}">{escape(part.title)}</a></li>' for name, part in zip(names, parts, strict=True)
    )
    return Template(_read_asset("page.html")).substitute(
        policy=make_content_policy(theme, script, plotly),
        version=__version__,
        title=escape(title),
        subtitle=escape(subtitle),
        style=_read_asset("report.css"),
        theme=theme,
        links=links,
        body="\n".join(renderer.render_section(part, name) for name, part in zip(names, parts, strict=True)),
        script=script,
        plotly=plotly,
        written=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
    )


def _format_title(runs: Sequence[RunView]) -> str:
    base, *others = (run.name for run in runs)
    if not others:
        return base
    return f"{', '.join(others) if len(others) <= 3 else f'{len(others)} runs'} against {base}"


def _format_subtitle(runs: Sequence[RunView]) -> str:
    """Say what ran where: the command and start of a single run, or the number of runs; the machines."""
    machines = dict.fromkeys(_describe_machine(r.environment) for run in runs for r in run.records)
    if len(runs) > 1:
        return ", ".join([f"{len(runs)} runs", *filter(None, machines)])
    (run,) = runs
    return ", ".join(filter(None, [run.command, format_minute(run.created), *machines]))


def _describe_machine(environment: Mapping[str, object]) -> str:
    cpu, cores = environment.get("cpu", ""), environment.get("cores")
    return f"{cpu} with {cores} cores" if cpu and cores else str(cpu)


def _make_anchors(parts: Sequence[Section]) -> list[str]:
    names: list[str] = []
    for part in parts:
        name, number = make_anchor(part.title), 2
        while name in names:
            name, number = f"{make_anchor(part.title)}-{number}", number + 1
        names.append(name)
    return names


def _read_asset(name: str) -> str:
    return (resources.files("tessera.report") / "assets" / name).read_text("utf-8")
