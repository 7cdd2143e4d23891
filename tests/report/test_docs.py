"""Test of docs/report.md: its examples run."""

import re
from pathlib import Path
from typing import Any

from tessera.report.page import build_page
from tessera.report.record_tables import build_table
from tests.report.synthetic import make_plausible_run

GUIDE = Path(__file__).parents[2] / "docs" / "report.md"


def test_the_table_and_the_section_in_the_guide_work() -> None:
    table, section = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(table, names)
    run = make_plausible_run()
    assert len(build_table(run.records, names["TABLE"]).rows) == len(run.records)
    exec(section, names)
    text = build_page([run], {"ops": names["section"]})
    assert "What one operator costs." in text
