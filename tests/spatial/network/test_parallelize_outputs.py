"""Tests of inputs and outputs of parallel networks: any batch size and dtype, and any structure of the output."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tessera.spatial import ParallelModel
from tests.spatial.comparison import check_close, run_on_ranks
from tests.spatial.network.test_parallelize import make_images, make_small_network

torch.set_num_threads(1)


def test_other_batches_sizes_and_dtypes_in_the_next_call() -> None:
    model = make_small_network()

    def run(parallel: ParallelModel) -> None:
        for samples, size in ((1, 23), (3, 23), (1, 31), (2, 9), (1, 23)):
            torch.manual_seed(samples)
            image = make_images(samples, size)
            unsplit = deepcopy(parallel.model).eval()
            parallel.eval()
            check_close(parallel.gather(parallel(parallel.scatter(image))), unsplit(image), "output")
        parallel.float()
        image = make_images(2).float()
        check_close(parallel.gather(parallel(parallel.scatter(image))), parallel.model(image), "output", 1e-5)

    run_on_ranks(model, "1x1", (23, 27), run)
    images = [make_images(*case) for case in ((1, 23), (3, 23), (1, 31), (2, 9), (1, 23))]

    def run_all(parallel: ParallelModel) -> list[Tensor]:
        return [parallel.gather(parallel(image)).detach() for image in images]

    unsplit = deepcopy(model)
    expected = [unsplit(image) for image in images]
    for outputs in run_on_ranks(model, "2x2", None, run_all):
        for output, exact in zip(outputs, expected, strict=True):
            check_close(output, exact, "output")


class NamedOutputs(NamedTuple):
    scores: Tensor
    maps: dict[str, Tensor]


def test_outputs_keep_their_structure() -> None:
    class Several(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.pool = nn.Conv2d(3, 4, 3, padding=1), nn.AdaptiveAvgPool2d(1)

        def forward(self, x: Tensor) -> NamedOutputs:
            features = self.conv(x)
            return NamedOutputs(self.pool(features), {"features": features})

    torch.manual_seed(5)
    model, image = Several().double(), make_images()
    expected = model(image)

    def run(parallel: ParallelModel) -> Any:
        return parallel.gather(parallel(parallel.scatter(image)))

    for outputs in run_on_ranks(model, "1x2", image.shape[2:], run):
        assert isinstance(outputs, NamedOutputs)
        check_close(outputs.scores, expected.scores, "scores")
        check_close(outputs.maps["features"], expected.maps["features"], "features")
