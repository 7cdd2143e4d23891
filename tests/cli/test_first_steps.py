"""Tests of what a new user types first: no words, `help`, plain mistakes, output files, and completion in a shell."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tessera.cli.command_words import HALO_EXAMPLE, correct_words
from tessera.cli.completion_command import SCRIPTS, complete_words
from tessera.cli.main import COMMANDS, ORIENTATION, main

Captured = pytest.CaptureFixture[str]


def test_no_words_print_an_orientation(capsys: Captured) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert shown == ORIENTATION
    assert len(shown.splitlines()) <= 15
    assert max(map(len, shown.splitlines())) <= 100
    for line in shown.splitlines():
        if line.startswith("  tessera"):
            assert line.split()[1] in COMMANDS


@pytest.mark.parametrize("words", [["help", "report"], ["report", "--help"]])
def test_help_of_a_command_begins_with_examples(words: list[str], capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "usage: tessera report [RUN] [options]"
    examples = lines.index("examples:")
    assert examples <= 5
    assert lines[examples + 1].startswith("  tessera report")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_two_examples_or_more(command: str) -> None:
    from importlib import import_module

    epilog = import_module(f"tessera.cli.{command}_command").EPILOG
    assert sum(f"tessera {command}" in line for line in epilog.splitlines()) >= 2


def test_halo_without_words_is_an_exchange_of_a_useful_size() -> None:
    words, note = correct_words(["halo"])
    assert words == ["halo", *HALO_EXAMPLE]
    assert "--image-size 1024" in note
    assert correct_words(["halo", "--list"]) == (["halo", "--list"], "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["suite", "quik"], "did you mean quick?"),
        (["ops", "conv"], "did you mean conv1d or conv2d or conv3d?"),
        (["ops", "add", "-o", "plan.png"], "-o: unknown suffix: got 'plan.png'; allowed: .txt"),
        (["report", "-o", "r.pdf"], "-o: unknown suffix: got 'r.pdf'"),
        (["ops", "add", "-o", "gone/x.json"], "-o: the directory does not exist"),
    ],
)
def test_mistakes_are_reported_before_anything_is_measured(words: list[str], message: str, capsys: Captured) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_a_unique_part_of_a_machine_and_lower_case_choices_are_accepted(capsys: Captured) -> None:
    listings = []
    for words in (("n150", "height"), ("wormhole-n150", "HEIGHT")):
        assert main(["conv", "--machine", words[0], "--shard-layout", words[1], "--list", "--csv"]) == 0
        listings.append(capsys.readouterr().out)
    assert listings[0] == listings[1]


def test_spellings_of_a_size_are_one_case(capsys: Captured) -> None:
    listings = set()
    for size in ("1GB", "1gb", "1 GB"):
        assert main(["phases", "--weight-budget", size, "--schedule", "overlapped", "--list", "--csv"]) == 0
        listings.add(capsys.readouterr().out)
    assert len(listings) == 1


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["sui"], {"suite"}),
        (["help", "hist"], {"history"}),
        (["ops", "conv2"], {"conv2d"}),
        (["suite", "st"], {"standard"}),
        (["halo", "exch"], {"exchange"}),
        (["halo", "exchange", "--transport", "gl"], {"gloo"}),
        (["conv", "--shard-layout", ""], {"HEIGHT", "search"}),
        (["infer", "--model", "resnet1"], {"resnet18"}),
        (["nothing", "--x"], set()),
    ],
)
def test_completed_words(typed: list[str], expected: set[str]) -> None:
    words = complete_words(typed)
    assert expected <= set(words)
    assert all(word.startswith(typed[-1]) for word in words)
    assert bool(words) == bool(expected)


@pytest.mark.skipif(shutil.which("bash") is None, reason="requires bash")
def test_completion_in_bash() -> None:
    """Source the printed script in a real bash, and call its function as bash does for `tessera halo exch<TAB>`."""
    script = f"""
tessera() {{ {sys.executable} -m tessera "$@"; }}
{SCRIPTS["bash"]}
COMP_WORDS=(tessera halo exch) COMP_CWORD=2
_tessera
echo "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "exchange"
