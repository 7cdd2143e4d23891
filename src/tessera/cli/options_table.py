"""The options tables of docs/options.md, generated from the declared options of every command.

`python -m tessera.cli.options_table --write` rewrites the tables between the markers `<!-- options:COMMAND -->` and
`<!-- /options -->` of every page in docs; without `--write` the tables are printed.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tessera.axes import Option
from tessera.cli.main import COMMANDS, CommandParser
from tessera.cli.options import SHARED_OPTIONS, configure_parser

DOCS_DIRECTORY = Path(__file__).parents[3] / "docs"
SHARED_TABLE_NAME = "shared"
MARKED_TABLE_PATTERN = re.compile(r"(<!-- options:([a-z ]+) -->\n).*?(<!-- /options -->)", re.DOTALL)


def iter_parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the parser of every command and subcommand with its name."""
    for name in COMMANDS:
        parser = CommandParser(prog=f"tessera {name}")
        configure_parser(parser, importlib.import_module(f"tessera.cli.{name}_command"))
        yield name, parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from ((f"{name} {each}", subparser) for each, subparser in action.choices.items())


def get_options(parser: argparse.ArgumentParser) -> list[Option]:
    """Return the declared options of a parser, without hidden options."""
    return [option for option in parser.get_default("declared") or () if not option.hidden]


def make_tables() -> dict[str, str]:
    """Return the Markdown tables by name: one per command, and one for the options that several commands share."""
    tables = {SHARED_TABLE_NAME: format_table(SHARED_OPTIONS)}
    for name, parser in iter_parsers():
        options = get_options(parser)
        groups = dict.fromkeys(option.group for option in options if option in SHARED_OPTIONS)
        tables[name] = format_table(option for option in options if option not in SHARED_OPTIONS)
        if groups:
            tables[name] += f"\nShared options: {', '.join(groups)}.\n"
    return tables


def format_table(options: Iterable[Option]) -> str:
    """Return a Markdown table of options."""
    lines = ["| option | default | description |", "| --- | --- | --- |"]
    for option in options:
        lines.append(
            f"| {_format_flags(option)} | {_escape_markdown(option.default_label)} | {_format_description(option)} |"
        )
    return "\n".join(lines) + "\n"


def _format_flags(option: Option) -> str:
    if option.positional:
        return f"`{_escape_markdown(option.positional)}`"
    value = "" if option.action in ("flag", "on_off", "const") else f" {_escape_markdown(option.value_name)}"
    flags = [option.flag, *option.aliases]
    if option.action == "on_off":
        flags.append(f"--no-{option.flag.removeprefix('--')}")
    return ", ".join(f"`{flag}{value}`" for flag in flags)


def _format_description(option: Option) -> str:
    allowed = f": {option.values_label}" if option.values_label else ""
    applies = f" (applies to {' and '.join(option.applies_to)})" if option.applies_to else ""
    return _escape_markdown(f"{option.help}{allowed}{applies}")


def _escape_markdown(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def replace_marked_tables(text: str, tables: dict[str, str]) -> str:
    """Return the text of a page with its marked tables replaced."""
    return MARKED_TABLE_PATTERN.sub(lambda match: match[1] + tables[match[2]] + match[3], text)


def main() -> int:
    """Print the tables, or write them into the pages of docs."""
    tables = make_tables()
    if "--write" not in sys.argv[1:]:
        for name, table in tables.items():
            print(f"## {name}\n\n{table}")
        return 0
    for page in sorted(DOCS_DIRECTORY.glob("*.md")):
        text = page.read_text()
        if (changed := replace_marked_tables(text, tables)) != text:
            page.write_text(changed)
            print(f"rewrote {page.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
