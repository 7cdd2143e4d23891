"""The report: one self-contained HTML page of one or more runs, made from their records alone.

The page asks nothing of the network: styles, scripts and Plotly are inside it, and its content security
policy names the scripts it was written with, so that nothing else can run in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from importlib import resources
from pathlib import Path
from string import Template

from tessera import __version__
from tessera.errors import TesseraError
from tessera.files import replace_text
from tessera.report.blocks import Section
from tessera.report.comparison import against_first, comparison_cards, comparison_section
from tessera.report.generic import generic_section
from tessera.report.policy import content_policy
from tessera.report.prediction import prediction_section
from tessera.report.render import Renderer, anchor
from tessera.report.runs import RunView, SectionBuilder, features
from tessera.report.summary import summary_section

__all__ = ["RunView", "SectionBuilder", "document", "page", "write_page"]


def page(runs: Sequence[RunView], sections: Mapping[str, SectionBuilder], *, threshold: float = 0.03) -> str:
    """The whole page as text; `sections` holds the features' own builders.

    With several runs the first is the baseline of the others, and changes below the threshold do not matter.
    """
    assert runs, "a report needs a run"
    compared = against_first(runs, threshold)
    parts = [summary_section(runs, comparison_cards(compared) if compared else ())]
    if compared:
        parts.append(comparison_section(runs[0], compared))
    for feature in features(runs):
        build = sections.get(feature) or generic_section(feature)
        parts.append(build([run.of(feature) for run in runs]))
    if predicted := prediction_section(runs):
        parts.append(predicted)
    return document(parts, title=_title(runs), kicker=_kicker(runs))


def write_page(text: str, path: Path) -> None:
    """Write the page whole or not at all: a reader never sees half of it."""
    target = path.resolve()
    if target.exists() and not target.is_file():
        # A rename would put the page in the place of a directory or a device.
        raise _unwritable(path, "it is there and is not a file")
    try:
        replace_text(target, text)
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from None


def _unwritable(path: Path, why: str) -> TesseraError:
    return TesseraError(f"cannot write the report: {why}", got=str(path), do="give another place with -o")


def document(parts: Sequence[Section], *, title: str, kicker: str) -> str:
    """A page of some sections, the first of which is its summary."""
    from plotly.offline import get_plotlyjs

    renderer = Renderer()
    names = _anchors(parts)
    theme, script, plotly = _asset("theme.js"), _asset("report.js"), get_plotlyjs()
    links = "".join(
        f'<li><a href="#{name}">{escape(part.title)}</a></li>' for name, part in zip(names, parts, strict=True)
    )
    return Template(_asset("page.html")).substitute(
        policy=content_policy(theme, script, plotly),
        version=__version__,
        title=escape(title),
        kicker=escape(kicker),
        style=_asset("report.css"),
        theme=theme,
        links=links,
        body="\n".join(renderer.section(part, name) for name, part in zip(names, parts, strict=True)),
        script=script,
        plotly=plotly,
        written=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
    )


def _title(runs: Sequence[RunView]) -> str:
    base, *others = (run.name for run in runs)
    if not others:
        return base
    return f"{', '.join(others) if len(others) <= 3 else f'{len(others)} runs'} against {base}"


def _kicker(runs: Sequence[RunView]) -> str:
    machines = dict.fromkeys(str(r.environment.get("cpu", "")) for run in runs for r in run.records)
    count = "One run" if len(runs) == 1 else f"{len(runs)} runs"
    return ", ".join([count, *filter(None, machines)])


def _anchors(parts: Sequence[Section]) -> list[str]:
    names: list[str] = []
    for part in parts:
        name, number = anchor(part.title), 2
        while name in names:
            name, number = f"{anchor(part.title)}-{number}", number + 1
        names.append(name)
    return names


def _asset(name: str) -> str:
    return (resources.files("tessera.report") / "assets" / name).read_text("utf-8")
