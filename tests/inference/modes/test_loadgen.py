"""Tests of mode server with MLPerf LoadGen, if it is installed."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("mlperf_loadgen")

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("batch", [1, 4])
def test_every_query_is_answered_and_timed(batch):
    from tessera.inference.modes.serving_worker import run_loadgen

    latencies, took = run_loadgen(lambda: time.sleep(0.002), rate=100.0, queries=80, bound=0.5, batch=batch)
    assert len(latencies) == 80
    assert all(0.002 <= one < 1 for one in latencies)
    assert 0.3 < took < 5


def test_the_error_of_a_failed_batch_is_raised():
    from tessera.inference.modes.serving_worker import run_loadgen

    calls = []

    def run():
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("out of images")

    with pytest.raises(RuntimeError, match="out of images"):
        run_loadgen(run, rate=200.0, queries=40, bound=0.5, batch=1)
    assert len(calls) == 3
