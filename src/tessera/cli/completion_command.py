"""Completion of commands, options and values in a shell.

The printed script asks `tessera completion` for the words that may come next: commands, options, their values,
operators, suites and models.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterable, Sequence

from tessera.axes import Option
from tessera.errors import EXIT_OK, TesseraError

EPILOG = """\
examples:
  eval "$(tessera completion bash)"                                        in ~/.bashrc
  eval "$(tessera completion zsh)"                                         in ~/.zshrc, after compinit
  tessera completion fish > ~/.config/fish/completions/tessera.fish
"""

SCRIPTS = {
    "bash": """\
_tessera() {
  COMPREPLY=($(compgen -W "$(tessera completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" \\
    -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _tessera tessera
""",
    "zsh": """\
_tessera() {
  local -a found
  found=(${(f)"$(tessera completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( $#found )); then compadd -a found; else _files; fi
}
compdef _tessera tessera
""",
    "fish": """\
function __tessera_words
  set -l typed (commandline -opc) (commandline -ct)
  tessera completion words -- $typed[2..-1] 2>/dev/null
end
complete -c tessera -a '(__tessera_words)'
""",
}
QUERY = "words"  # the question that the scripts ask

OPTIONS = (
    Option(name="shell", positional="SHELL", choices=(*SCRIPTS, QUERY), help="shell"),
    Option(name="typed", positional="WORD", several=True, hidden=True, help="words typed so far"),
)


def run(args: argparse.Namespace) -> int:
    if args.shell is None:
        raise TesseraError("no shell is given", allowed=SCRIPTS, do="see `tessera completion --help`")
    if args.shell == QUERY:
        print("\n".join(complete_words(args.typed)))
    else:
        print(SCRIPTS[args.shell], end="")
    return EXIT_OK


def complete_words(typed: Sequence[str]) -> list[str]:
    """Return the words that may replace the last typed word, which may be empty or incomplete.

    >>> complete_words(["comp"])
    ['compare', 'completion']
    >>> complete_words(["report", "--thr"])
    ['--threshold']
    """
    from tessera.cli.main import COMMANDS

    *before, last = typed or [""]
    if not before:
        return _select([*COMMANDS, "help", "--help", "--version"], last)
    if before[0] not in COMMANDS:
        return _select(COMMANDS, last) if before == ["help"] else []
    parser = _build_parser(before[0])
    return _select(_list_next_words(parser, before[0], before[1:]), last)


def _select(words: Iterable[str], start: str) -> list[str]:
    return [word for word in words if word.startswith(start)]


def _build_parser(command: str) -> argparse.ArgumentParser:
    from tessera.cli.options import configure_parser

    parser = argparse.ArgumentParser(prog=command, add_help=True)
    configure_parser(parser, importlib.import_module(f"tessera.cli.{command}_command"))
    return parser


def _list_next_words(parser: argparse.ArgumentParser, command: str, before: Sequence[str]) -> list[str]:
    """Return subcommands, values of the last option, or options and names."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            chosen = next((word for word in before if word in action.choices), None)
            if chosen is None:
                return [*action.choices, "--help"]
            return _list_next_words(action.choices[chosen], f"{command} {chosen}", before[before.index(chosen) + 1 :])
    declared: Sequence[Option] = parser.get_default("declared") or ()
    for option in declared:
        if before and before[-1] in (option.flag, *option.aliases) and option.action in ("store", "append"):
            return [str(choice) for choice in option.choices] or _list_values(option.name)
    flags = [flag for action in parser._actions if action.help != argparse.SUPPRESS for flag in action.option_strings]
    positional = [option for option in declared if option.positional]
    names = [str(choice) for option in positional for choice in option.choices if choice != QUERY]
    return [*names, *(name for option in positional for name in _list_values(option.name, command)), *flags]


def _list_values(name: str, command: str = "") -> list[str]:
    """Return the names that an option without declared choices takes; empty if they are not known."""
    if name == "suite":
        from tessera.suites.suite import list_suites

        return list_suites()
    if name == "names" and command in ("ops", "ab"):
        from tessera.operators.catalogue import find_operators

        return sorted(operator.name for operator in find_operators(["*"]))
    if name in ("model", "table", "network"):
        from tessera.models import MODELS

        return list(MODELS)
    return []
