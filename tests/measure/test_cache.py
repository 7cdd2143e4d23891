"""Tests of flushing the CPU caches: the buffer is larger than the largest cache, and allocated once."""

from __future__ import annotations

from tessera.measure.memory import MIN_FLUSH_BUFFER_BYTES, _get_flush_buffer, _read_largest_cache, flush_caches


def test_the_buffer_is_larger_than_any_cache_and_reused():
    flush_caches()
    first = int(_get_flush_buffer()[0])
    flush_caches()
    assert _get_flush_buffer().nbytes >= max(MIN_FLUSH_BUFFER_BYTES, 2 * _read_largest_cache())
    assert int(_get_flush_buffer()[0]) == first + 1
