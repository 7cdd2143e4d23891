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
