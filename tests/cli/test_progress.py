"""Tests of progress output: a bar on a terminal, and plain lines on other streams."""

from __future__ import annotations

import os
import pty
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tessera.cli.progress import RunProgress, StatusLine
from tessera.measure.samples import Samples, Sampling
from tessera.results.record import Case, Record
from tessera.suites.plan import RunPlan

ADD, SORT = (Case(feature="ops", name=name, params={"size": "small"}) for name in ("add", "sort"))
OK_RECORD = Record(case=ADD, launches=(Samples(values=(1.0,)),))
REFUSED_RECORD = Record(case=SORT, status="refused", reason="not here")
PLAN = RunPlan(cases=(ADD, SORT), sampling=Sampling(budget=1.0), launches=3)


@contextmanager
def open_terminal() -> Iterator[Callable[[], str]]:
    """Redirect standard error to a pseudo-terminal within the block; yield a function that reads the output."""
    master, slave = pty.openpty()
    with pytest.MonkeyPatch.context() as patch, os.fdopen(slave, "w") as stream:
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "100")
        patch.setattr(sys, "stderr", stream)

        def read_output() -> str:
            stream.flush()
            output = b""
            while select.select([master], [], [], 0.2)[0]:  # the output may arrive late and in pieces
                output += os.read(master, 1 << 16)
            return output.decode()

        yield read_output
    os.close(master)


def run_launches(progress: RunProgress) -> None:
    for launch in (1, 2, 3):
        progress.on_start(ADD, launch)
        progress.on_end(OK_RECORD, launch)
        if launch == 1:  # a refused case has no second launch
            progress.on_start(SORT, launch)
            progress.on_end(REFUSED_RECORD, launch)


def test_the_bar_counts_remaining_launches_and_starts_no_thread() -> None:
    before = threading.active_count()
    with open_terminal() as read_output, RunProgress(PLAN) as progress:
        assert "starting" in read_output()
        run_launches(progress)
        assert threading.active_count() == before
        shown = read_output()
    assert "ops sort" in shown
    assert "1/6" in shown
    assert "4/4" in shown
    assert "0:00 left" in shown


def test_without_a_terminal_every_launch_prints_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with RunProgress(PLAN) as progress:
        run_launches(progress)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("] ")[0] for line in lines] == ["[1/6", "[2/4", "[3/4", "[4/4"]
    assert lines[0].startswith("[1/6] ops/add[size=small] launch 1/3: ok (")
    assert "refused: not here" in lines[1]


def test_a_resumed_run_counts_only_remaining_launches(capsys: pytest.CaptureFixture[str]) -> None:
    with RunProgress(PLAN, done=5) as progress:
        progress.on_end(OK_RECORD, 3)
    assert capsys.readouterr().err.startswith("[1/1]")


def test_on_a_terminal_the_status_is_one_line() -> None:
    before = threading.active_count()
    with open_terminal() as read_output, StatusLine() as say:
        assert "starting" in read_output()
        say("[1/2] add, [bold]small[/bold]")
        assert "[1/2] add, [bold]small[/bold]" in read_output()
        assert threading.active_count() == before


def test_without_a_terminal_every_status_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with StatusLine() as say:
        say("one")
        say("two")
    assert capsys.readouterr().err == "one\ntwo\n"
