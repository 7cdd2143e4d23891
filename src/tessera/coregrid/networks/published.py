"""Published throughput of whole networks, for comparison with predictions."""

from __future__ import annotations

from dataclasses import dataclass

SOURCE_MODEL_TABLES = "tt-metal, models/README.md"
# Other commits of this test expect between 10,113 and 11,864 images/s.
SOURCE_BLACKHOLE_TEST = "tt-metal, models/demos/blackhole/resnet50/tests/test_perf_device_resnet50.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRate:
    """Published images per second of a network on a device, excluding transfers from and to the host."""

    network: str
    machine: str
    batch: int
    image_size: int = 224
    rate: float
    source: str


PUBLISHED_RATES = (
    PublishedRate(network="resnet50", machine="grayskull-e150", batch=20, rate=7_700, source=SOURCE_MODEL_TABLES),
    PublishedRate(network="resnet50", machine="wormhole-n150", batch=16, rate=6_335, source=SOURCE_MODEL_TABLES),
    PublishedRate(network="resnet50", machine="blackhole-p150", batch=16, rate=10_610, source=SOURCE_BLACKHOLE_TEST),
)


def find_published_rate(network: str, machine: str, batch: int, image: tuple[int, int]) -> PublishedRate | None:
    """Return the published images/s for a network, machine, batch size and image size, or None."""
    for row in PUBLISHED_RATES:
        if (row.network, row.machine, row.batch) == (network, machine, batch) and image == (row.image_size,) * 2:
            return row
    return None
