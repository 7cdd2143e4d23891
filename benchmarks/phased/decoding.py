"""Weights with fewer bits: time of a pass with int8 and int4 weights, relative to float32 and bfloat16.

A chain of linear layers with one row, so that passes are bound by loading, with warm and cold page cache. The time to
decode one layer on one core is stated beside the time to read it, as a rate of decoded bytes.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from phased.interleaved import build_summary, compute_medians, compute_ratio, format_ratio, time_interleaved
from tessera.phased import MatrixChain, PhasedModel, write_weights
from tessera.phased.store.encoding import ENCODINGS, decode_into, encode

LAYER_SIZE, LAYERS, ROUNDS = 2048, 24, 7
PLAIN_DTYPES = ("float32", "bfloat16")


def run(say: Callable[[str], None], *, small: bool = False, rounds: int | None = None) -> dict[str, Any]:
    size, layers, default_rounds = (256, 4, 2) if small else (LAYER_SIZE, LAYERS, ROUNDS)
    rates = {encoding: _measure_decoding(size, encoding) for encoding in ENCODINGS}
    lines = [f"{layers} layers of {size} x {size}, one row; decoded on one core:"]
    lines += [f"  {encoding}: {rate / 1e9:.2f} GB/s of float32 weights" for encoding, rate in rates.items()]
    results: dict[str, Any] = {"decoding": rates}
    network, x = MatrixChain(size, layers), torch.randn(1, size)
    with torch.device("meta"):
        skeleton = MatrixChain(size, layers)
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as folder, torch.no_grad():
        for dtype in (*PLAIN_DTYPES, *ENCODINGS):
            write_weights(Path(folder, dtype), network, dtype=dtype)
        for cache in ("warm", "cold"):
            say(f"decoding, {cache}")
            budget = 4 * size * size * 8
            with ExitStack() as stack:
                options = {"budget": budget, "keep": False, "cold": cache == "cold", "threads": 1}
                models = {
                    dtype: stack.enter_context(PhasedModel(skeleton, path=Path(folder, dtype), **options))
                    for dtype in (*PLAIN_DTYPES, *ENCODINGS)
                }
                variants = {dtype: (lambda model=model: model(x)) for dtype, model in models.items()}
                values = time_interleaved(variants, rounds or default_rounds)
            results[cache] = build_summary(values)
            medians = ", ".join(f"{dtype} {seconds * 1e3:.1f} ms" for dtype, seconds in compute_medians(values).items())
            lines.append(f"  {cache}: {medians}")
            for encoding in ENCODINGS:
                for plain in PLAIN_DTYPES:
                    ratio = format_ratio(compute_ratio(values, plain, encoding))
                    lines.append(f"    {encoding}: {ratio} times as fast as {plain}")
    return {"found": results, "lines": lines}


def _measure_decoding(size: int, encoding: str) -> float:
    """Return the bytes of float32 weights that one core decodes in a second."""
    content, _ = encode(torch.randn(size, size), encoding)
    out = torch.empty(size, size)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        decode_into(content, encoding, out)
        seconds.append(time.perf_counter() - start)
    return out.nbytes / min(seconds)
