"""Everything stays in memory: how fast the network is when nothing has to be moved."""

from __future__ import annotations

from tessera.phased.schedules.one_device import OneDevice


class Resident(OneDevice):
    """All phases were loaded when the model was made."""
