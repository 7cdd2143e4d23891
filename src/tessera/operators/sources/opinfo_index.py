"""The entries of torch's OpInfo database by name, without the dozen seconds that importing it takes.

They are kept in a file for one version of torch and read from the database itself under any other.
`python -m tessera.operators.sources.opinfo_index` writes the file anew.
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

FILE = files("tessera.operators") / "data" / "opinfo.json"
OTHER_DTYPES = ("complex64", "int64", "bool", "uint8", "complex128")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry: which operator it is a variant of, its other names, whether it differentiates.

    `dtype` is set for an operator that has no floating-point numbers, as bitwise ones have not.
    """

    operator: str
    aliases: tuple[str, ...] = ()
    differentiable: bool = True
    dtype: str = ""


@cache
def index() -> Mapping[str, Entry]:
    """Every entry by its name, which is the operator's with the variant behind it, such as `div.floor_rounding`."""
    kept = json.loads(FILE.read_text())
    if kept["torch"] != _torch_version():
        return from_database()
    return {
        name: Entry(
            operator=entry.get("operator", name),
            aliases=tuple(entry.get("aliases", ())),
            differentiable=entry.get("differentiable", True),
            dtype=entry.get("dtype", ""),
        )
        for name, entry in kept["entries"].items()
    }


def check_usable() -> None:
    """Refuse where all that torch's own tests need beside torch is missing."""
    if find_spec("expecttest") is None:
        raise MissingExtra("expecttest", "opinfo")


@cache
def op_db() -> Mapping[str, Any]:
    """The database itself, torch's OpInfo objects by the same names. Importing it takes a dozen seconds."""
    check_usable()
    from torch.testing._internal.common_methods_invocations import op_db as entries

    return {f"{entry.name}.{entry.variant_test_name}".rstrip("."): entry for entry in entries}


def from_database() -> dict[str, Entry]:
    """The index as the installed torch has it."""
    return {name: _entry(info) for name, info in op_db().items()}


def _entry(info: Any) -> Entry:
    names = {str(dtype).removeprefix("torch.") for dtype in info.dtypes}
    real = any(dtype.is_floating_point for dtype in info.dtypes)
    dtype = "" if real else next((name for name in OTHER_DTYPES if name in names), "")
    return Entry(
        operator=info.name,
        aliases=tuple(sorted(alias.name for alias in info.aliases)),
        differentiable=bool(info.supports_autograd) and (real or dtype.startswith("complex")),
        dtype=dtype,
    )


def _torch_version() -> str:
    return version("torch").partition("+")[0]


def _written(entries: Mapping[str, Entry]) -> str:
    """The file's text: one line per entry, with what is not as usual."""
    lines = []
    for name, entry in sorted(entries.items()):
        usual = Entry(operator=name)
        told = {
            key: value
            for key in ("operator", "aliases", "differentiable", "dtype")
            if (value := getattr(entry, key)) != getattr(usual, key)
        }
        lines.append(f"  {json.dumps(name)}: {json.dumps(told)}")
    body = ",\n".join(lines)
    return f'{{"torch": {json.dumps(_torch_version())}, "entries": {{\n{body}\n}}}}\n'


if __name__ == "__main__":
    from pathlib import Path

    Path(str(FILE)).write_text(_written(from_database()))
