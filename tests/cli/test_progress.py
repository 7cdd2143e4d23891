"""How a command goes on: on a real terminal, and on a stream that is none."""

from __future__ import annotations

import os
import pty
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tessera.cli.progress import Progress, StatusLine
from tessera.measure.samples import Samples, Sampling
from tessera.results.record import Case, Record
from tessera.suites.plan import Plan

ADD, SORT = (Case(feature="ops", name=name, params={"size": "small"}) for name in ("add", "sort"))
OK = Record(case=ADD, launches=(Samples(values=(1.0,)),))
REFUSED = Record(case=SORT, status="refused", reason="not here")
PLAN = Plan(cases=(ADD, SORT), sampling=Sampling(budget=1.0), launches=3)


@contextmanager
def terminal() -> Iterator[Callable[[], str]]:
    """Standard error is a terminal within the block; gives what was written to it."""
    master, slave = pty.openpty()
    with pytest.MonkeyPatch.context() as patch, os.fdopen(slave, "w") as stream:
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "100")
        patch.setattr(sys, "stderr", stream)

        def written() -> str:
            stream.flush()
            found = b""
            while select.select([master], [], [], 0.2)[0]:  # the system hands it over a little later, and in pieces
                found += os.read(master, 1 << 16)
            return found.decode()

        yield written
    os.close(master)


def go_through(progress: Progress) -> None:
    for launch in (1, 2, 3):
        progress.begins(ADD, launch)
        progress.ends(OK, launch)
        if launch == 1:  # what is refused once is not launched again
            progress.begins(SORT, launch)
            progress.ends(REFUSED, launch)


def test_a_bar_counts_what_is_left_and_is_drawn_by_no_thread() -> None:
    before = threading.active_count()
    with terminal() as written, Progress(PLAN) as progress:
        assert "starting" in written()
        go_through(progress)
        assert threading.active_count() == before
        shown = written()
    assert "ops sort" in shown
    assert "1/6" in shown
    assert "4/4" in shown
    assert "0:00 left" in shown


def test_without_a_terminal_every_launch_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(PLAN) as progress:
        go_through(progress)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("] ")[0] for line in lines] == ["[1/6", "[2/4", "[3/4", "[4/4"]
    assert lines[0].startswith("[1/6] ops/add[size=small] launch 1/3: ok (")
    assert "refused: not here" in lines[1]


def test_a_run_that_goes_on_counts_only_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(PLAN, done=5) as progress:
        progress.ends(OK, 3)
    assert capsys.readouterr().err.startswith("[1/1]")


def test_a_status_is_one_line_of_a_terminal() -> None:
    before = threading.active_count()
    with terminal() as written, StatusLine() as say:
        assert "starting" in written()
        say("[1/2] add, [bold]small[/bold]")
        assert "[1/2] add, [bold]small[/bold]" in written()
        assert threading.active_count() == before


def test_a_status_is_a_line_each_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with StatusLine() as say:
        say("one")
        say("two")
    assert capsys.readouterr().err == "one\ntwo\n"
