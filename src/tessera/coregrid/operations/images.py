"""Images as arguments of an operation: their shape, their device, and the numbers of a window."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.coregrid.convolution import Pair
from tessera.coregrid.device.device import Device
from tessera.coregrid.device.tensors import Tensor
from tessera.errors import TesseraError


def check_images(given: Tensor, shape: tuple[int, int, int, int], device: Device) -> None:
    """Images are `(N, H, W, C)`, or flattened to `(1, 1, N*H*W, C)`, on the host or on this device."""
    batch, height, width, channels = shape
    flat = (1, 1, batch * height * width, channels)
    if given.shape not in (shape, flat):
        raise TesseraError("the input is not of this shape", got=given.shape, allowed=f"{shape} or {flat}")
    if given.is_on_device and given.placed.device is not device:
        raise TesseraError("the input is on another device", got=given.placed.device, allowed=f"{device}")
    _ = device.arena  # raises if it is closed


def device_of(given: Tensor, device: Device | None) -> Device:
    """The device of a tensor, or the one that is named for a tensor of the host."""
    if given.is_on_device:
        return given.placed.device
    if device is None:
        raise TesseraError("a tensor on the host needs a device to work on", got=given, do="pass device=")
    return device


def pair(name: str, value: Sequence[int]) -> Pair:
    """Height and width."""
    if len(value) != 2:
        raise TesseraError(f"{name} has two numbers", got=value, allowed="(height, width)")
    return int(value[0]), int(value[1])


def paddings(value: Sequence[int]) -> tuple[Pair, Pair]:
    """Above and below, left and right, from two or four numbers.

    >>> paddings((1, 2)), paddings((1, 2, 3, 4))
    (((1, 1), (2, 2)), ((1, 2), (3, 4)))
    """
    if len(value) == 2:
        return (value[0], value[0]), (value[1], value[1])
    if len(value) != 4:
        raise TesseraError(
            "padding has two or four numbers", got=value, allowed="(height, width) or (top, bottom, left, right)"
        )
    return (value[0], value[1]), (value[2], value[3])
