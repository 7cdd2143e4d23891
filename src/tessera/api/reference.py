"""Generate docs/api.md from the public names: `python -m tessera.api.reference --write docs/api.md`."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import tessera

PAGE_INTRO = """\
# Python API

`import tessera` offers the names below. They are imported at first use: `import tessera` itself does not import torch.
This page is generated from the docstrings by `python -m tessera.api.reference --write docs/api.md`.
"""


def generate_reference() -> str:
    """Return the Markdown text of docs/api.md."""
    parts = [PAGE_INTRO]
    for name in tessera.__all__:
        if not name.startswith("__"):
            parts.append(_describe_name(name, getattr(tessera, name)))
    return "\n".join(parts)


def _describe_name(name: str, value: Any) -> str:
    if isinstance(value, ModuleType):
        return f"## `tessera.{name}`\n\n{_format_doc(value)}\n"
    signature = _format_signature(value)
    lines = [f"## `tessera.{name}`", "", f"```python\n{name}{signature}\n```", "", _format_doc(value), ""]
    if inspect.isclass(value) and not issubclass(value, Exception):
        lines += [*_list_members(value), ""]
    return "\n".join(lines)


def _format_signature(value: Any) -> str:
    try:
        return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(value)))
    except ValueError:
        return "(…)"


def _format_doc(value: Any) -> str:
    """Return a docstring as Markdown: code and doctests in fenced blocks, arguments and errors as lists."""
    lines: list[str] = []
    fenced = in_list = False
    for line in (inspect.getdoc(value) or "").splitlines():
        if line in ("Args:", "Returns:", "Raises:"):
            in_list = True
            lines += [line, ""]
            continue
        in_list = in_list and (not line or line.startswith("    "))
        is_code = not in_list and (line.startswith(("    ", ">>> ", "... ")) or (fenced and bool(line.strip())))
        if is_code != fenced:
            lines.append("```python" if is_code else "```")
            fenced = is_code
        if in_list and line.startswith("    ") and not line.startswith("     "):
            line = "- " + line.strip()
        lines.append(line.removeprefix("    ") if fenced else line)
    return "\n".join([*lines, "```"] if fenced else lines)


def _list_members(kind: type) -> list[str]:
    """Return one line for each public method and property that has a docstring."""
    lines = []
    for name, member in inspect.getmembers(kind):
        doc = inspect.getdoc(member)
        if name.startswith("_") or not doc or not (callable(member) or isinstance(member, property)):
            continue
        call = "" if isinstance(member, property) else "()"
        lines.append(f"- `{name}{call}`: {doc.splitlines()[0]}")
    return lines


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        Path(sys.argv[2]).write_text(generate_reference())
    else:
        print(generate_reference(), end="")
