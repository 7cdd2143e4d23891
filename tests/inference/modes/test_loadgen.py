"""Questions by MLPerf LoadGen itself, where it is installed."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("mlperf_loadgen")

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("batch", [1, 4])
def test_every_question_is_answered_and_timed(batch):
    from tessera.inference.modes.loadgen import asked

    latencies, took = asked(lambda: time.sleep(0.002), rate=100.0, questions=80, bound=0.5, batch=batch)
    assert len(latencies) == 80
    assert all(0.002 <= one < 1 for one in latencies)
    assert 0.3 < took < 5


def test_an_answer_that_fails_ends_the_test_and_is_raised():
    from tessera.inference.modes.loadgen import asked

    calls = []

    def run():
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("out of images")

    with pytest.raises(RuntimeError, match="out of images"):
        asked(run, rate=200.0, questions=40, bound=0.5, batch=1)
    assert len(calls) == 3
