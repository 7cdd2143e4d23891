"""Architectures of the modelled chips, under ttnn's names."""

from __future__ import annotations

from enum import Enum

from tessera.coregrid.device.device import Device

__all__ = ["Arch", "Device"]


class Arch(Enum):
    """Architecture of a chip."""

    GRAYSKULL = "grayskull"
    WORMHOLE_B0 = "wormhole_b0"
    BLACKHOLE = "blackhole"
