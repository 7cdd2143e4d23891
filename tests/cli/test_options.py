"""Tests that help texts, docs and checks match the option declarations."""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tessera.axes import Axis
from tessera.cli.main import COMMANDS, main
from tessera.cli.options_table import (
    MARKED_TABLE_PATTERN,
    get_options,
    iter_parsers,
    make_tables,
    replace_marked_tables,
)

DOCS = Path(__file__).parents[2] / "docs"
PARSERS = dict(iter_parsers())
# Options that must have equal meaning in every command; only defaults and help texts may differ.
SAME_EVERYWHERE = (
    "--store",
    "--budget",
    "--total",
    "--iterations",
    "--launches",
    "--threads",
    "--run-name",
    "--resume",
)


def get_flags(parser: argparse.ArgumentParser) -> set[str]:
    """Return every option and positional argument that the help text of a parser lists."""
    flags = set()
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        flags |= set(action.option_strings) or {str(action.metavar)}
    return flags


@pytest.mark.parametrize("name", PARSERS)
def test_every_option_of_help_is_declared(name):
    declared = set()
    for option in get_options(PARSERS[name]):
        declared |= {option.positional} if option.positional else {option.flag, *option.aliases}
        declared |= {f"--no-{option.flag.removeprefix('--')}"} if option.action == "on_off" else set()
    assert get_flags(PARSERS[name]) == declared


@pytest.mark.parametrize("name", PARSERS)
def test_every_option_is_in_the_docs(name):
    pages = {match[2]: match[0] for match in MARKED_TABLE_PATTERN.finditer((DOCS / "options.md").read_text())}
    missing = {
        flag
        for flag in get_flags(PARSERS[name])
        if f"`{flag}" not in (pages[name] + pages["shared"]).replace("\\|", "|")
    }
    assert missing == set()


def test_the_option_tables_of_the_docs_are_up_to_date():
    tables = make_tables()
    for page in DOCS.glob("*.md"):
        text = page.read_text()
        assert replace_marked_tables(text, tables) == text, f"{page.name}: run `make docs`"


@pytest.mark.parametrize("name", PARSERS)
def test_every_option_has_a_line_of_help(name):
    for option in get_options(PARSERS[name]):
        assert option.help, option
        assert not option.help.startswith(("of ", "the ", "what ", "how ")), option.help
        assert not option.help.endswith("."), option.help


@pytest.mark.parametrize("flag", SAME_EVERYWHERE)
def test_an_option_means_the_same_in_every_command(flag):
    declared = [
        option
        for name, parser in PARSERS.items()
        for option in get_options(parser)
        if option.flag == flag and not (name == "halo validate" and flag == "--iterations")
    ]
    assert len({(option.group, option.action) for option in declared if option.group}) == 1
    units = {option.metavar for option in declared}
    assert len(units) == 1


def test_every_command_has_the_same_default_launches():
    defaults = {
        option.default_text
        for name, parser in PARSERS.items()
        for option in get_options(parser)
        if option.flag == "--launches" and name != "suite"  # a suite sets its launches
    }
    assert defaults == {"3; with --quick 1"}


def test_iterations_have_a_short_spelling_everywhere():
    for parser in PARSERS.values():
        flags = get_flags(parser)
        assert ("--iterations" in flags) == ("--iters" in flags)


def test_sweeps_are_accepted_by_every_command_with_axes():
    for parser in PARSERS.values():
        options = get_options(parser)
        several = [option for option in options if isinstance(option, Axis)]
        if several and "--store" in get_flags(parser):
            assert "--sweep" in get_flags(parser)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_printed(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    assert "%%" not in capsys.readouterr().out


@pytest.mark.parametrize(("words", "limit"), [(["--help"], 0.3), (["list", "ops"], 1.0)])
def test_help_and_lists_start_quickly(words, limit):
    """The best of three CPU times is tested, because CPU time depends little on other processes."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "tessera", *words], check=True, capture_output=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < limit
