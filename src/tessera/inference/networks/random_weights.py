"""Random weights that answer: made so that the answers of a network differ from image to image.

A network that was never trained gives nearly the same scores to every image, with next to nothing between the first
and the second. Whether a rounded network still gives the same answer cannot be seen on it. So, where a network of
random weights is to be rounded, the statistics of its batch norms are taken from drawn images, as they are in training,
swishes are fed where they are open, and the last layer is fitted (ridge regression) to tell the kinds of drawn images
apart. All other weights stay random.
This makes agreement a figure that can fail; it does not make it that of a trained network, which needs `--weights`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from tessera.inference.arrays import Array
from tessera.inference.data.images import KINDS, drawn_images, kinds_of
from tessera.inference.data.pixels import Pixels

STATISTICS = KINDS  # images for the norms, one of every kind
EXAMPLES = 4 * KINDS  # images for the last layer: what several of a kind have in common is not their grain
OPEN = 1.0  # the middle of what a swish gets, which is nearly straight there
RIDGE = 0.05  # of the mean square of the features: the fit must not hang on faint ones
SCORE, BACKGROUND = 10.0, 0.5  # of the right kind, and the spread of classes that stand for no kind
BATCH = 8


def fit_random_weights(module: nn.Module, image_shape: tuple[int, int, int], *, seed: int) -> None:
    """Give a network of random weights statistics and a last layer that fit drawn images."""
    with torch.no_grad():
        _open_swishes(module, seed)
        images = _images(STATISTICS, image_shape, seed=seed)
        _take_statistics(module, images)
        last = _last_layer(module)
        if last is not None and last.out_features > 1:
            examples = _images(EXAMPLES, image_shape, seed=seed + 1)
            _fit(last, _features(module, last, examples), np.asarray(kinds_of(EXAMPLES)) % last.out_features, seed)


def _images(count: int, image_shape: tuple[int, int, int], *, seed: int) -> Tensor:
    raw = drawn_images(count, image_shape, seed=seed)
    out = np.empty(raw.shape, np.float32)
    Pixels(channels=image_shape[0], element="float32", normalised_on="host").converted(raw, out)
    return torch.from_numpy(out)


def _open_swishes(module: nn.Module, seed: int) -> None:
    """Shift what swishes get to where they are open: about zero they bend most, and magnify what differs but little.

    Through the many blocks of an EfficientNet that would drown an image in its own grain, as no trained network does.
    """
    generator = torch.Generator().manual_seed(seed)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d) and getattr(layer, "before_swish", False):
            layer.bias.normal_(OPEN, 0.05, generator=generator)


def _take_statistics(module: nn.Module, images: Tensor) -> None:
    """The mean and the variance that each batch norm sees, each batch being normalised by its own."""
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]
    usual = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None  # a plain mean over the batches
        norm.reset_running_stats()
        norm.train()
    for batch in torch.split(images, BATCH) if norms else ():
        module(batch)
    for norm, momentum in zip(norms, usual, strict=True):
        norm.momentum = momentum
        norm.eval()


def _last_layer(module: nn.Module) -> nn.Linear | None:
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    return layers[-1] if layers else None


def _features(module: nn.Module, last: nn.Linear, images: Tensor) -> Tensor:
    """What the last layer gets for each image."""
    seen: list[Tensor] = []
    hook = last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].double()))
    try:
        for batch in torch.split(images, BATCH):
            module(batch)
    finally:
        hook.remove()
    return torch.cat(seen)


def _fit(last: nn.Linear, features: Tensor, kinds: Array, seed: int) -> None:
    mean = features.mean(dim=0)
    centred = features - mean
    gram = centred @ centred.T
    gram.diagonal().add_(RIDGE * gram.diagonal().mean())
    wanted = nn.functional.one_hot(torch.from_numpy(kinds), last.out_features).double()
    wanted = SCORE * (wanted - wanted.mean(dim=0))
    weight = torch.linalg.solve(gram, wanted).T @ centred
    generator = torch.Generator().manual_seed(seed)
    others = torch.ones(last.out_features, dtype=torch.bool)
    others[kinds] = False
    drawn = torch.randn(int(others.sum()), last.in_features, generator=generator, dtype=torch.float64)
    weight[others] = drawn * (BACKGROUND / (drawn @ centred.T).std().clamp(min=1e-12)) if others.any() else drawn
    last.weight.copy_(weight)
    if last.bias is not None:
        last.bias.copy_(-(weight @ mean))
