"""Named tables of convolutions: those of any model of the registry, one row for every shape."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.coregrid.convolution import Convolution
from tessera.coregrid.networks.layers import convolutions


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A convolution under the name of its first layer, and how many layers are alike."""

    name: str
    conv: Convolution
    count: int


def table(name: str, batch: int = 1, image_size: int | None = None) -> list[Row]:
    """The convolutions of a model, those of one shape once.

    >>> rows = table("resnet50", batch=8)
    >>> rows[0].name, rows[0].conv.kernel, sum(row.count for row in rows)
    ('conv1', (7, 7), 53)
    """
    found: dict[Convolution, Row] = {}
    for layer in convolutions(name, batch, image_size):
        known = found.get(layer.conv)
        count = known.count + 1 if known else 1
        found[layer.conv] = Row(name=known.name if known else layer.name, conv=layer.conv, count=count)
    return list(found.values())
