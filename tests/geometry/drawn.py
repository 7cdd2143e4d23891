"""Random windows, partitions and plans."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from math import prod

from hypothesis import strategies as st

from tessera.geometry import HaloPlan, Mesh, Partition, Window
from tessera.geometry.halo import MODES, Mode
from tessera.geometry.partition import cuts_at

KINDS = ("plain", "ceil", "transposed")
MOST_WORKERS = 6
LARGE = 50  # an image that every window fits


@st.composite
def windows(draw: st.DrawFn, dims: int, kinds: Sequence[str] = KINDS) -> Window:
    """Of a convolution or a pool; of a pool that may stick out; of a transposed convolution."""

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
def images(draw: st.DrawFn, window: Window, mode: Mode) -> tuple[int, ...]:
    """Sizes of images that a window fits, samples first, many of them hardly larger than it."""
    least = [_least(window, axis) for axis in range(len(window.kernel))]
    if mode != "zeros":  # which repeats no more than the image has
        least = [max(size, max(pad) + 1) for size, pad in zip(least, window.padding, strict=True)]
    more = st.integers(0, 7 if len(least) < 3 else 3)
    return (draw(st.integers(1, 3)), *(size + draw(more) for size in least))


def _least(window: Window, axis: int) -> int:
    """The smallest image that a window fits along one axis."""
    for size in count(1):
        try:
            window.output_size([size if other == axis else LARGE for other in range(len(window.kernel))])
        except ValueError:
            continue
        return size
    raise AssertionError("never")


@st.composite
def lengths(draw: st.DrawFn, size: int, parts: int) -> list[int]:
    """A length in parts, some of them empty."""
    ends = sorted(draw(st.lists(st.integers(0, size), min_size=parts - 1, max_size=parts - 1)))
    return [b - a for a, b in zip([0, *ends], [*ends, size], strict=True)]


@st.composite
def partitions(draw: st.DrawFn, sizes: Sequence[int], workers: int, *, runs: bool = True) -> Partition:
    """Any partition of an image, its shards given to the workers in any order."""
    kinds = ["grid", "uneven", "samples", "everywhere", "at", *(["runs"] if runs else [])]
    kind = draw(st.sampled_from(kinds))
    if kind == "everywhere":
        return Partition.everywhere(sizes, workers)
    if kind == "at":
        return Partition.at(sizes, workers, draw(st.integers(0, workers - 1)))
    rows = draw(st.sampled_from([n for n in range(1, workers + 1) if workers % n == 0]))
    if kind == "grid":
        found = Partition.grid(sizes, Mesh(rows, workers // rows), draw(st.integers(1, 3)))
    elif kind == "samples":
        found = Partition.samples(sizes, workers)
    elif kind == "runs":
        found = Partition.runs(sizes, draw(lengths(prod(sizes), workers)))
    else:
        parts = [1] * len(sizes)
        for each in (rows, workers // rows):
            parts[draw(st.integers(0, len(sizes) - 1))] *= each
        cuts = [cuts_at(size, draw(lengths(size, n))) for size, n in zip(sizes, parts, strict=True)]
        found = Partition.product(sizes, cuts)
    order = draw(st.permutations(range(workers)))
    return Partition(found.sizes, tuple(found.shards[worker] for worker in order))


@st.composite
def plans(draw: st.DrawFn, workers: int | None = None) -> HaloPlan:
    """Any window on any image, with input and output cut independently."""
    mode = draw(st.sampled_from(MODES))
    window = draw(windows(draw(st.sampled_from([1, 2, 2, 3])), KINDS if mode == "zeros" else ["plain"]))
    sizes = draw(images(window, mode))
    workers = workers or draw(st.integers(1, MOST_WORKERS))
    inputs = draw(partitions(sizes, workers))
    outputs = draw(partitions((sizes[0], *window.output_size(sizes[1:])), workers, runs=mode in ("zeros", "circular")))
    return HaloPlan(inputs, window, outputs, mode)
