"""The report of runs from a store or from exported files: each feature builds its section of the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tessera.errors import TesseraError
from tessera.launch.fresh import load_object
from tessera.report.finding_pictures import make_statement
from tessera.report.findings import Finding, collect_findings
from tessera.report.page import build_page, write_page
from tessera.report.runs import RunView, list_features
from tessera.results.export import is_file_name, read_json
from tessera.results.record import Record
from tessera.results.store import Store
from tessera.suites.features import FEATURES


def write_report(names: Sequence[str], *, store_path: str | None, path: Path, threshold: float = 0.03) -> None:
    """Write the HTML page of the runs `names` to `path`; the first run is the baseline."""
    runs = [_read_run(name, store_path) for name in names]
    if len({run.name for run in runs}) < len(runs):
        raise TesseraError("a run is given twice", got=", ".join(run.name for run in runs), do="name different runs")
    shown = list_features(runs)
    if not shown:
        raise TesseraError("the runs have no records", got=", ".join(run.name for run in runs))
    sections = {name: load_object(FEATURES[name].section) for name in shown if name in FEATURES}
    findings = [make_statement(finding, _get_title(finding)) for finding in find_results(runs[-1].records)]
    write_page(build_page(runs, sections, threshold=threshold, findings=findings), path)


def _get_title(finding: Finding) -> str:
    return FEATURES[finding.feature].title if finding.feature in FEATURES else finding.feature.capitalize()


def find_results(records: Sequence[Record]) -> list[Finding]:
    """Return the findings of a run, by the rules of its features."""
    shown = dict.fromkeys(record.case.feature for record in records)
    rules = {
        name: load_object(FEATURES[name].findings) for name in shown if name in FEATURES and FEATURES[name].findings
    }
    return collect_findings(records, rules)


def _read_run(name: str, store_path: str | None) -> RunView:
    if is_file_name(name):
        exported = read_json(name)
        # Runs exported from several machines may have equal names; their files have different names.
        return RunView(name=name, created=exported.started, command=exported.command, records=exported.records)
    with Store(store_path, create=False) as store:
        run = store.get_run(name)
        records = list(store.read_records(run))
    return RunView(name=run.name, created=run.started, command=run.command, records=records)
