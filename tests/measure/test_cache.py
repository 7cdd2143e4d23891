"""Emptying the caches: the buffer is larger than any of them, and made once."""

from __future__ import annotations

from tessera.measure.cache import LEAST, _filler, _largest_cache, flush


def test_more_is_read_than_any_cache_holds_and_the_buffer_stays():
    flush()
    first = int(_filler()[0])
    flush()
    assert _filler().nbytes >= max(LEAST, 2 * _largest_cache())
    assert int(_filler()[0]) == first + 1
