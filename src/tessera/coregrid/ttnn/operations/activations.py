"""References of activations in torch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tessera.coregrid.activations import UnaryWithParam, compute_activation, normalise_activation


def get_golden_function_for_activation(
    activation: UnaryWithParam | str | None,
) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """Return the function that computes an activation in torch, or None for no activation."""
    name = normalise_activation(activation)
    return (lambda values: compute_activation(values, name)) if name else None
