"""Hypothesis strategies for windows, partitions and plans."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from math import prod

from hypothesis import strategies as st

from tessera.geometry import Box, HaloPlan, Interval, Mesh, Partition, Window
from tessera.geometry.halo import PADDING_MODES, PaddingMode
from tessera.geometry.partition import split_by_lengths, split_evenly

KINDS = ("plain", "ceil", "transposed")
MAX_WORKERS = 6
LARGE = 50  # an image size that every window fits


def place_on(sizes: Sequence[int], workers: int, worker: int = 0) -> Partition:
    """Give one worker the whole image."""
    return Partition(tuple(sizes), tuple((Box.from_sizes(sizes),) if w == worker else () for w in range(workers)))


@st.composite
def windows(draw: st.DrawFn, dims: int, kinds: Sequence[str] = KINDS) -> Window:
    """Draw the window of a convolution or a pool, of a pool in ceil mode, or of a transposed convolution."""

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(dims))

    kind = draw(st.sampled_from(kinds))
    stride, dilation = each(1, 3), each(1, 3)
    more = tuple(draw(st.integers(0, max(most) - 1)) for most in zip(stride, dilation, strict=True))
    return Window(
        each(1, 4 if dims < 3 else 3),
        stride,
        dilation,
        tuple(zip(each(0, 3), each(0, 3), strict=True)),
        ceil_mode=kind == "ceil",
        transposed=kind == "transposed",
        output_padding=more if kind == "transposed" else (),
    )


@st.composite
def images(draw: st.DrawFn, window: Window, mode: PaddingMode) -> tuple[int, ...]:
    """Draw the sizes (samples first) of an image that a window fits; often little larger than the window."""
    least = [_find_min_size(window, axis) for axis in range(len(window.kernel))]
    if mode != "zeros":  # padding modes other than zeros require at least as many pixels as padding
        least = [max(size, max(pad) + 1) for size, pad in zip(least, window.padding, strict=True)]
    more = st.integers(0, 7 if len(least) < 3 else 3)
    return (draw(st.integers(1, 3)), *(size + draw(more) for size in least))


def _find_min_size(window: Window, axis: int) -> int:
    """Return the smallest image size that a window fits along one axis."""
    for size in count(1):
        try:
            window.compute_output_size([size if dim == axis else LARGE for dim in range(len(window.kernel))])
        except ValueError:
            continue
        return size
    raise AssertionError("never")


@st.composite
def lengths(draw: st.DrawFn, size: int, parts: int) -> list[int]:
    """Draw the lengths of `parts` parts with the sum `size`; some may be 0."""
    ends = sorted(draw(st.lists(st.integers(0, size), min_size=parts - 1, max_size=parts - 1)))
    return [b - a for a, b in zip([0, *ends], [*ends, size], strict=True)]


@st.composite
def partitions(draw: st.DrawFn, sizes: Sequence[int], workers: int, *, runs: bool = True) -> Partition:
    """Draw a partition of an image, with its shards assigned to the workers in any order."""
    kinds = ["grid", "uneven", "samples", "everywhere", "at", *(["runs"] if runs else [])]
    kind = draw(st.sampled_from(kinds))
    if kind == "everywhere":
        return Partition.replicate(sizes, workers)
    if kind == "at":
        return place_on(sizes, workers, draw(st.integers(0, workers - 1)))
    rows = draw(st.sampled_from([n for n in range(1, workers + 1) if workers % n == 0]))
    if kind == "grid":
        partition = Partition.split_by_grid(sizes, Mesh(rows, workers // rows), draw(st.integers(1, 3)))
    elif kind == "samples":
        whole = [[Interval(0, size)] for size in sizes[1:]]
        partition = Partition.from_intervals(sizes, [split_evenly(sizes[0], workers), *whole])
    elif kind == "runs":
        partition = Partition.split_runs(sizes, draw(lengths(prod(sizes), workers)))
    else:
        parts = [1] * len(sizes)
        for each in (rows, workers // rows):
            parts[draw(st.integers(0, len(sizes) - 1))] *= each
        cuts = [split_by_lengths(size, draw(lengths(size, n))) for size, n in zip(sizes, parts, strict=True)]
        partition = Partition.from_intervals(sizes, cuts)
    order = draw(st.permutations(range(workers)))
    return Partition(partition.sizes, tuple(partition.shards[worker] for worker in order))


@st.composite
def plans(draw: st.DrawFn, workers: int | None = None) -> HaloPlan:
    """Draw a plan: a window, an image, and independent partitions of input and output."""
    mode = draw(st.sampled_from(PADDING_MODES))
    window = draw(windows(draw(st.sampled_from([1, 2, 2, 3])), KINDS if mode == "zeros" else ["plain"]))
    sizes = draw(images(window, mode))
    workers = workers or draw(st.integers(1, MAX_WORKERS))
    inputs = draw(partitions(sizes, workers))
    outputs = draw(
        partitions((sizes[0], *window.compute_output_size(sizes[1:])), workers, runs=mode in ("zeros", "circular"))
    )
    return HaloPlan(inputs, window, outputs, mode)
