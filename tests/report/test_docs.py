import re
from pathlib import Path
from typing import Any

from tessera.report.page import page
from tests.report.synthetic import plausible

GUIDE = Path(__file__).parents[2] / "docs" / "report.md"


def test_the_section_in_the_guide_works() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    text = page([plausible()], {"ops": names["section"]})
    assert "What one operator costs." in text
