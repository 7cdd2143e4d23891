"""The base class of errors that are shown to users, and the exit codes of the command."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Exit codes of the command; `tessera --help` explains them.
EXIT_OK, EXIT_REGRESSION, EXIT_USAGE, EXIT_NOTHING_COMPARABLE, EXIT_BENCHMARK_FAILED, EXIT_TIMED_OUT = (
    0,
    1,
    2,
    3,
    4,
    124,
)


def get_first_line(error: BaseException) -> str:
    """Return the first line of an error message, or the type name of an error without a message.

    >>> get_first_line(ValueError("first\\nsecond")), get_first_line(KeyboardInterrupt())
    ('first', 'KeyboardInterrupt')
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def escape_controls(text: str) -> str:
    """Escape control characters, lone surrogates and bidirectional controls, so that text cannot command a terminal.

    >>> escape_controls("a" + chr(27) + "[2J" + chr(0x202E) + "é")
    'a\\\\x1b[2J\\\\u202eé'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def suggest_similar(word: str, known: Iterable[str], instead: str = "") -> str:
    """Return a suggestion of similar names for an error message; `instead` if there are none.

    >>> suggest_similar("ad", ["add", "matmul"])
    'did you mean add?'
    """
    near = difflib.get_close_matches(word, list(known), n=3)
    return f"did you mean {' or '.join(near)}?" if near else instead


class TesseraError(Exception):
    """An error that the user can fix: what is wrong, the value, the allowed values, what to do.

    >>> str(TesseraError("unknown case", got="ad", allowed=["add", "matmul"], do="see `tessera list ops`"))
    "unknown case: got 'ad'; allowed: add, matmul; see `tessera list ops`"
    """

    exit_code = EXIT_USAGE

    def __init__(
        self, what: str, *, got: object = None, allowed: Iterable[object] | str | None = None, do: str = ""
    ) -> None:
        self.what, self.got, self.do = what, got, do
        self.allowed = allowed if isinstance(allowed, str | None) else ", ".join(str(a) for a in allowed)
        parts = []
        if got is not None:
            parts.append(f"got {_shorten(repr(got))}")
        if self.allowed:
            parts.append(f"allowed: {self.allowed}")
        if do:
            parts.append(do)
        super().__init__(what + (": " + "; ".join(parts) if parts else ""))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_error, (type(self), str(self))


def _shorten(text: str, limit: int = 400) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def _rebuild_error(kind: type[TesseraError], text: str) -> TesseraError:
    """Rebuild an error from its text when it is unpickled; only the text is pickled."""
    error = kind.__new__(kind)
    Exception.__init__(error, text)
    error.what, error.got, error.allowed, error.do = text, None, None, ""
    return error


class MissingExtra(TesseraError):
    """The error for a package that a feature requires and that is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed", do=f"pip install 'tessera[{extra}]'")


class NothingComparable(TesseraError):
    """The error for two runs without a common case that can be compared."""

    exit_code = EXIT_NOTHING_COMPARABLE


class Refused(TesseraError):
    """The error for a valid case that is not supported; the record of the case has the status `refused`."""


class BenchmarkFailed(TesseraError):
    """The error for a benchmark that failed, or whose worker failed."""

    exit_code = EXIT_BENCHMARK_FAILED


class TimedOut(BenchmarkFailed):
    """The error for a benchmark that exceeded its time limit."""

    exit_code = EXIT_TIMED_OUT
