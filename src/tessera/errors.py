"""The one base class of errors that are shown to a user, and the exit codes of the command."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

OK, REGRESSION, USAGE, NOTHING_COMPARABLE, BENCHMARK_FAILED, TIMED_OUT = 0, 1, 2, 3, 4, 124


def first_line(error: BaseException) -> str:
    """What an error of a library says, in one line; its type where it says nothing.

    >>> first_line(ValueError("first\\nsecond")), first_line(KeyboardInterrupt())
    ('first', 'KeyboardInterrupt')
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def did_you_mean(word: str, known: Iterable[str], instead: str = "") -> str:
    """What a user may have meant, as the end of an error; `instead` when nothing is near.

    >>> did_you_mean("ad", ["add", "matmul"])
    'did you mean add?'
    """
    near = difflib.get_close_matches(word, list(known), n=3)
    return f"did you mean {' or '.join(near)}?" if near else instead


class TesseraError(Exception):
    """Something the user can mend: what is wrong, what was got, what is allowed, what to do.

    >>> str(TesseraError("unknown case", got="ad", allowed=["add", "matmul"], do="see `tessera list ops`"))
    "unknown case: got 'ad'; allowed: add, matmul; see `tessera list ops`"
    """

    exit_code = USAGE

    def __init__(
        self, what: str, *, got: object = None, allowed: Iterable[object] | str | None = None, do: str = ""
    ) -> None:
        self.what, self.got, self.do = what, got, do
        self.allowed = allowed if isinstance(allowed, str | None) else ", ".join(str(a) for a in allowed)
        parts = []
        if got is not None:
            parts.append(f"got {got!r}")
        if self.allowed:
            parts.append(f"allowed: {self.allowed}")
        if do:
            parts.append(do)
        super().__init__(what + (": " + "; ".join(parts) if parts else ""))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), str(self))


def _rebuild(kind: type[TesseraError], text: str) -> TesseraError:
    """Errors cross process borders as their text."""
    error = kind.__new__(kind)
    Exception.__init__(error, text)
    error.what, error.got, error.allowed, error.do = text, None, None, ""
    return error


class MissingExtra(TesseraError):
    """A feature needs a package that is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed", do=f"pip install 'tessera[{extra}]'")


class NothingComparable(TesseraError):
    """Two runs share no case that may be compared."""

    exit_code = NOTHING_COMPARABLE


class Refused(TesseraError):
    """A case that is understood and deliberately not run; it becomes a `refused` record."""


class BenchmarkFailed(TesseraError):
    """A benchmark, or the worker that ran it, broke."""

    exit_code = BENCHMARK_FAILED


class TimedOut(BenchmarkFailed):
    """A benchmark did not end within its time limit."""

    exit_code = TIMED_OUT
