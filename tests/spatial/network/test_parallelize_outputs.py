"""What a cut network takes and gives: any batch and dtype, and outputs in the structure that the uncut one gives."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tessera.spatial import ParallelModel
from tests.spatial.against_uncut import close, ranks
from tests.spatial.network.test_parallelize import images, small

torch.set_num_threads(1)


def test_other_batches_and_dtypes_have_programs_of_their_own() -> None:
    model = small()

    def body(parallel: ParallelModel) -> None:
        for samples in (1, 3, 1):
            image = images(samples)
            uncut = deepcopy(parallel.model).eval()
            parallel.eval()
            close(parallel.gather(parallel(parallel.scatter(image))), uncut(image), "output")
        parallel.float()
        image = images(2).float()
        close(parallel.gather(parallel(parallel.scatter(image))), parallel.model(image), "output", 1e-5)

    ranks(model, "1x1", (23, 27), body)


class Found(NamedTuple):
    scores: Tensor
    maps: dict[str, Tensor]


def test_outputs_keep_their_structure() -> None:
    class Several(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.pool = nn.Conv2d(3, 4, 3, padding=1), nn.AdaptiveAvgPool2d(1)

        def forward(self, x: Tensor) -> Found:
            features = self.conv(x)
            return Found(self.pool(features), {"features": features})

    torch.manual_seed(5)
    model, image = Several().double(), images()
    expected = model(image)

    def body(parallel: ParallelModel) -> Any:
        return parallel.gather(parallel(parallel.scatter(image)))

    for found in ranks(model, "1x2", image.shape[2:], body):
        assert isinstance(found, Found)
        close(found.scores, expected.scores, "scores")
        close(found.maps["features"], expected.maps["features"], "features")
