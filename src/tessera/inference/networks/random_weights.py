"""Fit random weights so that a network predicts different classes for different images.

An untrained network gives nearly equal scores to every image, so it cannot show whether quantisation changes the
predicted classes. Before quantisation, random weights are therefore adjusted: batch norms get the statistics of
generated images, the inputs of SiLU activations are shifted to the nearly linear range, and the last layer is fitted
(ridge regression) to distinguish the kinds of generated images. All other weights stay random.

With these weights the agreement check can fail. It does not predict the agreement of a trained network (use `--weights`
for that).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from tessera.inference.data.images import IMAGE_KINDS, Array, PixelFormat, get_image_kinds

NORM_FIT_IMAGES = IMAGE_KINDS  # images for the batch-norm statistics: one of every kind
LAST_LAYER_FIT_IMAGES = 4 * IMAGE_KINDS  # for the last layer: several of a kind, so that it does not fit pixel noise
SWISH_CENTRE = 1.0  # mean input of a SiLU, where it is nearly linear
RIDGE_FACTOR = 0.05  # regularisation, relative to the mean square of the features
TARGET_SCORE = 10.0  # score of the correct kind
UNUSED_SCORE_DEVIATION = 0.5  # standard deviation of the scores of unused classes
BATCH_SIZE = 8


def fit_random_weights(module: nn.Module, image_shape: tuple[int, int, int], *, seed: int) -> None:
    """Fit the batch-norm statistics and the last layer of a network with random weights to generated images."""
    with torch.no_grad():
        _shift_swishes(module, seed)
        images = _draw_images(NORM_FIT_IMAGES, image_shape, seed=seed)
        _set_norm_statistics(module, images)
        last = _find_last_layer(module)
        if last is not None and last.out_features > 1:
            examples = _draw_images(LAST_LAYER_FIT_IMAGES, image_shape, seed=seed + 1)
            _fit_last_layer(
                last,
                _compute_features(module, last, examples),
                np.asarray(get_image_kinds(LAST_LAYER_FIT_IMAGES)) % last.out_features,
                seed,
            )


def _draw_images(count: int, image_shape: tuple[int, int, int], *, seed: int) -> Tensor:
    pixels = PixelFormat(channels=image_shape[0], dtype="float32", normalised_on="host")
    return torch.from_numpy(pixels.generate_batch(count, image_shape, seed=seed))


def _shift_swishes(module: nn.Module, seed: int) -> None:
    """Shift the inputs of SiLU activations to the nearly linear range.

    A SiLU is most nonlinear around zero, where it amplifies small differences. Over the many blocks of an EfficientNet
    pixel noise would then dominate the predicted class, which does not happen in trained networks.
    """
    generator = torch.Generator().manual_seed(seed)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d) and getattr(layer, "before_swish", False):
            layer.bias.normal_(SWISH_CENTRE, 0.05, generator=generator)


def _set_norm_statistics(module: nn.Module, images: Tensor) -> None:
    """Set the running statistics of each batch norm from a pass in training mode."""
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None  # cumulative mean over the batches instead of a moving average
        norm.reset_running_stats()
        norm.train()
    for batch in torch.split(images, BATCH_SIZE) if norms else ():
        module(batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def _find_last_layer(module: nn.Module) -> nn.Linear | None:
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    return layers[-1] if layers else None


def _compute_features(module: nn.Module, last: nn.Linear, images: Tensor) -> Tensor:
    """Return the inputs of the last layer for each image."""
    features: list[Tensor] = []
    hook = last.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0].double()))
    try:
        for batch in torch.split(images, BATCH_SIZE):
            module(batch)
    finally:
        hook.remove()
    return torch.cat(features)


def _fit_last_layer(last: nn.Linear, features: Tensor, kinds: Array, seed: int) -> None:
    mean = features.mean(dim=0)
    centred = features - mean
    gram = centred @ centred.T
    gram.diagonal().add_(RIDGE_FACTOR * gram.diagonal().mean())
    wanted = nn.functional.one_hot(torch.from_numpy(kinds), last.out_features).double()
    wanted = TARGET_SCORE * (wanted - wanted.mean(dim=0))
    weight = torch.linalg.solve(gram, wanted).T @ centred
    generator = torch.Generator().manual_seed(seed)
    others = torch.ones(last.out_features, dtype=torch.bool)
    others[kinds] = False
    drawn = torch.randn(int(others.sum()), last.in_features, generator=generator, dtype=torch.float64)
    weight[others] = (
        drawn * (UNUSED_SCORE_DEVIATION / (drawn @ centred.T).std().clamp(min=1e-12)) if others.any() else drawn
    )
    last.weight.copy_(weight)
    if last.bias is not None:
        last.bias.copy_(-(weight @ mean))
