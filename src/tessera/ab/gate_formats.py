"""Files that a gate writes for other programs: Markdown, JUnit XML, SARIF, and JSON of three benchmark databases."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any
from xml.etree import ElementTree

from tessera.ab.gate import GateResult, GateRule
from tessera.report.figures import format_percent, format_seconds
from tessera.results.record import Record

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
RULE_ID = "slower"
FAILED_STATUSES = ("failed", "timed_out")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """The results of a gate with the labels of both sides."""

    base: str
    head: str
    rule: GateRule
    results: tuple[GateResult, ...]

    @property
    def slower(self) -> list[GateResult]:
        return [result for result in self.results if result.record.verdict == "slower"]

    @property
    def failed(self) -> list[GateResult]:
        return [result for result in self.results if result.record.status in FAILED_STATUSES]

    @property
    def compared(self) -> list[GateResult]:
        return [result for result in self.results if result.record.status == "ok"]

    def count_verdicts(self) -> dict[str, int]:
        """Return the number of cases of each verdict or, without a verdict, status."""
        counts: dict[str, int] = {}
        for result in self.results:
            name = (result.record.verdict or result.record.status).replace("_", " ")
            counts[name] = counts.get(name, 0) + 1
        return counts

    def list_smallest(self) -> list[float]:
        """Return the smallest detectable change of each compared case, as a fraction."""
        return [_get_value(result.record, "smallest") for result in self.compared]


def format_conclusion(report: GateReport) -> list[str]:
    """Return the sentences below the table: verdict counts, false-alarm rate and smallest detectable changes."""
    counts = ", ".join(f"{count} {name}" for name, count in report.count_verdicts().items())
    lines = [f"{len(report.results)} cases: {counts}."]
    if smallest := report.list_smallest():
        lines.append(
            f"A change of {format_percent(median(smallest))} would have been detected in the median case, "
            f"of {format_percent(max(smallest))} in every case."
        )
    lines.append(
        f"Probability of a false alarm over all cases together: at most {report.rule.false_alarms:.2g}. "
        f"Changes below {format_percent(report.rule.threshold)} are not reported."
    )
    return lines


def format_markdown_comment(report: GateReport) -> str:
    """Return the text of a pull-request comment: changed and failed cases first, all cases folded below."""
    changed = [r for r in report.results if r.record.verdict in ("slower", "faster") or r in report.failed]
    heading = "slower" if report.slower else "failed" if report.failed else "no regression"
    lines = [f"## Performance gate: {heading}", "", f"{report.head} compared with {report.base}.", ""]
    if changed:
        lines += [*_format_rows(changed), ""]
    lines += [*(f"{line}  " for line in format_conclusion(report)), ""]
    lines += ["<details><summary>All cases</summary>", "", *_format_rows(report.results), "", "</details>", ""]
    return "\n".join(lines)


def _format_rows(results: Sequence[GateResult]) -> list[str]:
    rows = ["| case | base | head | head / base | interval | verdict | detectable |", "|---|--:|--:|--:|--:|---|--:|"]
    for result in results:
        record, label = result.record, result.label.replace("|", "\\|")
        if record.status != "ok":
            reason = " ".join(record.reason.replace("|", "\\|").split())
            rows.append(f"| `{label}` | | | | | {record.status.replace('_', ' ')}: {reason} | |")
            continue
        verdict = f"**{record.verdict}**" if record.verdict in ("slower", "faster") else str(record.verdict)
        cells = [
            f"`{label}`",
            format_seconds(_get_value(record, "time_a")),
            format_seconds(_get_value(record, "time_b")),
            f"{_get_value(record, 'ratio'):.3f}",
            f"{_get_value(record, 'low'):.3f} to {_get_value(record, 'high'):.3f}",
            verdict,
            format_percent(_get_value(record, "smallest")),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def format_junit(report: GateReport) -> str:
    """Return JUnit XML: a test case for each case; `slower` is a failure, a failed case an error."""
    skipped = sum(result.record.status == "refused" for result in report.results)
    suite = ElementTree.Element(
        "testsuite",
        name="tessera gate",
        tests=str(len(report.results)),
        failures=str(len(report.slower)),
        errors=str(len(report.failed)),
        skipped=str(skipped),
    )
    for result in report.results:
        record = result.record
        seconds = _get_value(record, "time_b") if record.status == "ok" else 0.0
        test = ElementTree.SubElement(
            suite, "testcase", classname=record.case.feature, name=result.label, time=f"{seconds:.9f}"
        )
        if record.verdict == "slower":
            ElementTree.SubElement(test, "failure", type="slower", message=describe_change(result))
        elif record.status in FAILED_STATUSES:
            ElementTree.SubElement(test, "error", type=record.status, message=record.reason)
        elif record.status == "refused":
            ElementTree.SubElement(test, "skipped", message=record.reason)
        else:
            ElementTree.SubElement(test, "system-out").text = describe_change(result)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def format_sarif(report: GateReport) -> str:
    """Return SARIF 2.1.0 with one result per slower or failed case, for annotations in a code review."""
    rule = {
        "id": RULE_ID,
        "name": "SlowerCase",
        "shortDescription": {"text": "The head is slower than the base."},
        "defaultConfiguration": {"level": "error"},
    }
    failed = {
        "id": "failed",
        "name": "FailedCase",
        "shortDescription": {"text": "The case failed on the head."},
        "defaultConfiguration": {"level": "error"},
    }
    results = []
    for result in (*report.slower, *report.failed):
        slower = result.record.verdict == "slower"
        text = describe_change(result) if slower else result.record.reason
        location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": result.label, "kind": "function"}]}
        if result.gated.source is not None:
            file, line = result.gated.source
            location["physicalLocation"] = {"artifactLocation": {"uri": file}, "region": {"startLine": line}}
        results.append(
            {
                "ruleId": RULE_ID if slower else "failed",
                "level": "error",
                "message": {"text": f"{result.label}: {text}"},
                "locations": [location],
                "partialFingerprints": {"case": result.label},
            }
        )
    driver = {"name": "tessera gate", "rules": [rule, failed]}
    document = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}
    return _to_json(document)


def format_github_annotations(report: GateReport) -> str:
    """Return workflow commands of GitHub Actions: an error at the source of each slower or failed case."""
    lines = []
    for result in (*report.slower, *report.failed):
        place = "file={},line={},".format(*result.gated.source) if result.gated.source is not None else ""
        text = " ".join(describe_change(result).split()).replace("%", "%25")
        title = result.label.replace("%", "%25").replace(",", "%2C").replace(":", "%3A")
        lines.append(f"::error {place}title={title}::{text}\n")
    return "".join(lines)


def format_json(report: GateReport) -> str:
    """Return the results as JSON: sides, rule, and one entry per case."""
    cases = []
    for result in report.results:
        record = result.record
        values = {name: _make_finite(metric.value) for name, metric in record.metrics.items()}
        stage = {"stage": result.stage, "launches": len(record.values)} if record.status == "ok" else {}
        cases.append(
            {"case": result.label, "status": record.status, "verdict": record.verdict, "reason": record.reason}
            | values
            | stage
        )
    rule = {"threshold": report.rule.threshold, "false_alarms": report.rule.false_alarms, "budget": report.rule.budget}
    return _to_json({"base": report.base, "head": report.head, "rule": rule, "cases": cases})


def format_pytorch_database(report: GateReport) -> str:
    """Return the records of PyTorch's OSS benchmark database: the head's latency of each case, in microseconds."""
    records = []
    for result in report.compared:
        record = result.record
        libraries = record.environment.get("libraries", {})
        records.append(
            {
                "benchmark": {
                    "name": "tessera gate",
                    "mode": str(record.case.params.get("pass", "forward")),
                    "dtype": str(record.case.params.get("dtype", "")),
                    "extra_info": {"base": report.base, "head": report.head, "verdict": record.verdict},
                },
                "model": {"name": result.label, "type": record.case.feature, "origins": ["tessera"]},
                "metric": {
                    "name": "latency",
                    "unit": "us",
                    "benchmark_values": [value * 1e6 for value in record.details["sides"]["b"]],
                    "target_value": _get_value(record, "time_a") * 1e6,
                    "extra_info": {"ratio": _get_value(record, "ratio")},
                },
                "dependencies": {name: {"version": str(version)} for name, version in libraries.items()},
            }
        )
    return _to_json(records)


def format_github_action_benchmark(report: GateReport) -> str:
    """Return the input of github-action-benchmark, tool `customSmallerIsBetter`: the head's time of each case."""
    return _to_json(
        [
            {
                "name": result.label,
                "unit": "us",
                "value": _get_value(result.record, "time_b") * 1e6,
                "range": f"± {_compute_half_range(result.record) * 1e6:.3g}",
                "extra": describe_change(result),
            }
            for result in report.compared
        ]
    )


def format_bencher(report: GateReport) -> str:
    """Return Bencher Metric Format: the head's latency of each case in nanoseconds, with lower and upper value."""
    metrics = {}
    for result in report.compared:
        times = sorted(result.record.details["sides"]["b"])
        value = _get_value(result.record, "time_b")
        low, high = times[len(times) // 4], times[(3 * len(times)) // 4]
        latency = {"value": value * 1e9, "lower_value": min(low, value) * 1e9, "upper_value": max(high, value) * 1e9}
        metrics[result.label] = {"latency": latency}
    return _to_json(metrics)


GATE_FORMATS: dict[str, Callable[[GateReport], str]] = {
    "markdown": format_markdown_comment,
    "junit": format_junit,
    "sarif": format_sarif,
    "github-annotations": format_github_annotations,
    "json": format_json,
    "pytorch": format_pytorch_database,
    "github-action-benchmark": format_github_action_benchmark,
    "bencher": format_bencher,
}


def describe_change(result: GateResult) -> str:
    """Return one sentence on the ratio of a compared case."""
    record = result.record
    if record.status != "ok":
        return record.reason
    ratio, low, high = (_get_value(record, name) for name in ("ratio", "low", "high"))
    return (
        f"{record.verdict}: head / base {ratio:.3f} ({low:.3f} to {high:.3f}), "
        f"smallest detectable change {format_percent(_get_value(record, 'smallest'))}"
    )


def _compute_half_range(record: Record) -> float:
    times = sorted(record.details["sides"]["b"])
    half: float = (times[(3 * len(times)) // 4] - times[len(times) // 4]) / 2
    return half


def _get_value(record: Record, name: str) -> float:
    return record.metrics[name].value


def _make_finite(value: float) -> float | None:
    """Return None for values that JSON does not have."""
    return value if math.isfinite(value) else None


def _to_json(document: Any) -> str:
    return json.dumps(document, indent=1, allow_nan=False) + "\n"
