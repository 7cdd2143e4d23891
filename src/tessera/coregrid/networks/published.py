"""What the makers of the chips published for whole networks, to hold predictions against."""

from __future__ import annotations

from dataclasses import dataclass

SOURCE = "tt-metal, tables of models, https://github.com/tenstorrent/tt-metal/blob/main/models/README.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Images per second of a network: on the device alone where that is known, and end to end."""

    network: str
    machine: str
    batch: int
    image_size: int = 224
    device: float | None
    end_to_end: float

    @property
    def compared(self) -> float:
        """The figure that a prediction of the device is held against."""
        return self.device or self.end_to_end


PUBLISHED = (
    Published(network="resnet50", machine="grayskull-e150", batch=20, device=7_700, end_to_end=5_100),
    Published(network="resnet50", machine="wormhole-n150", batch=16, device=6_335, end_to_end=4_700),
    Published(network="resnet50", machine="blackhole-p150", batch=16, device=None, end_to_end=12_600),
)


def published(network: str, machine: str, batch: int, image: tuple[int, int]) -> Published | None:
    """The published figures of a network on a machine for batches of such images, if there are any."""
    for row in PUBLISHED:
        if (row.network, row.machine, row.batch) == (network, machine, batch) and image == (row.image_size,) * 2:
            return row
    return None
