"""Tests that every `tessera` command line in README and docs parses: commands, options and values exist."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import pytest

from tessera.cli.command_words import correct_words
from tessera.cli.main import COMMANDS, CommandParser
from tessera.cli.options import configure_parser, finish_arguments
from tessera.errors import TesseraError

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```(?:console|sh|bash)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(tessera [a-z][^`\n]*)`")
PLACEHOLDERS = ("…", "...", "RUN", "NAME", "FILE", "COMMAND", "|", "<", "[", " N", "other-venv")


def list_commands(text: str) -> list[str]:
    """Return the `tessera` command lines of a page, without prompts, comments and pipes."""
    lines = [line for block in FENCED.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    found = [line.strip().removeprefix("$ ") for line in lines]
    found += INLINE.findall(text)
    commands = [re.split(r"\s{2,}|\s#|\s[|>&]|;\s", line)[0] for line in found if line.startswith("tessera ")]
    return [line for line in commands if not any(mark in line for mark in PLACEHOLDERS)]


def parse_command(line: str) -> None:
    words, _ = correct_words(shlex.split(line)[1:])
    if words[0].startswith("-") or "--help" in words:
        return
    assert words[0] in COMMANDS, line
    parser = CommandParser(prog="tessera", allow_abbrev=False)
    configure_parser(parser, importlib.import_module(f"tessera.cli.{words[0]}_command"))
    finish_arguments(parser.parse_args(words[1:]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_the_page_parses(page: Path) -> None:
    for line in list_commands(page.read_text()):
        try:
            parse_command(line)
        except TesseraError as error:
            pytest.fail(f"{page.name}: `{line}`: {error}")


def test_the_commands_are_found() -> None:
    found = {page.name: list_commands(page.read_text()) for page in PAGES}
    assert len(found["README.md"]) >= 8
    assert sum(map(len, found.values())) >= 150
    with pytest.raises(TesseraError, match="--bogus"):
        parse_command("tessera ops add --bogus")
