"""An index of torch's OpInfo database, which avoids importing the database (about 12 s).

The stored index file is valid for one version of torch; for other versions, the index is built from the database.
`python -m tessera.operators.sources.opinfo_index` rewrites the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from tessera.errors import MissingExtra

INDEX_FILE = files("tessera.operators") / "data" / "opinfo.json"
NON_FLOAT_DTYPES = ("complex64", "int64", "bool", "uint8", "complex128")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpInfoEntry:
    """One OpInfo entry: its operator (an entry may be a variant), its aliases, and whether it has a gradient.

    `dtype` is set for an operator without floating-point support, such as a bitwise operator.
    """

    operator: str
    aliases: tuple[str, ...] = ()
    differentiable: bool = True
    dtype: str = ""


@cache
def load_index() -> Mapping[str, OpInfoEntry]:
    """Return all OpInfo entries by name; a name is the operator and the variant, such as `div.floor_rounding`."""
    stored = json.loads(INDEX_FILE.read_text())
    if stored["torch"] != _get_torch_version():
        return build_index()
    return {
        name: OpInfoEntry(
            operator=entry.get("operator", name),
            aliases=tuple(entry.get("aliases", ())),
            differentiable=entry.get("differentiable", True),
            dtype=entry.get("dtype", ""),
        )
        for name, entry in stored["entries"].items()
    }


def check_usable() -> None:
    """Raise an error if `expecttest`, which torch's own tests import, is not installed."""
    if find_spec("expecttest") is None:
        raise MissingExtra("expecttest", "opinfo")


@cache
def load_database() -> Mapping[str, Any]:
    """Import the database and return torch's OpInfo objects by name. The import takes about 12 s."""
    check_usable()
    from torch.testing._internal.common_methods_invocations import op_db as entries

    return {f"{entry.name}.{entry.variant_test_name}".rstrip("."): entry for entry in entries}


def build_index() -> dict[str, OpInfoEntry]:
    """Build the index from the OpInfo database of the installed torch."""
    return {name: _make_entry(info) for name, info in load_database().items()}


def _make_entry(info: Any) -> OpInfoEntry:
    names = {str(dtype).removeprefix("torch.") for dtype in info.dtypes}
    real = any(dtype.is_floating_point for dtype in info.dtypes)
    dtype = "" if real else next((name for name in NON_FLOAT_DTYPES if name in names), "")
    return OpInfoEntry(
        operator=info.name,
        aliases=tuple(sorted(alias.name for alias in info.aliases)),
        differentiable=bool(info.supports_autograd) and (real or dtype.startswith("complex")),
        dtype=dtype,
    )


def _get_torch_version() -> str:
    return version("torch").partition("+")[0]


def _format_index(entries: Mapping[str, OpInfoEntry]) -> str:
    """Return the text of the index file: one line per entry, with the fields that differ from their defaults."""
    lines = []
    for name, entry in sorted(entries.items()):
        default = OpInfoEntry(operator=name)
        fields = {
            key: value
            for key in ("operator", "aliases", "differentiable", "dtype")
            if (value := getattr(entry, key)) != getattr(default, key)
        }
        lines.append(f"  {json.dumps(name)}: {json.dumps(fields)}")
    body = ",\n".join(lines)
    return f'{{"torch": {json.dumps(_get_torch_version())}, "entries": {{\n{body}\n}}}}\n'


if __name__ == "__main__":
    from pathlib import Path

    Path(str(INDEX_FILE)).write_text(_format_index(build_index()))
