"""Tests of every convolution of ResNet-50 on the cores, in every layout that fits, compared with torch."""

from __future__ import annotations

import pytest

import tessera.coregrid as ttnn
from tessera.coregrid.networks.layers import list_convolutions
from tessera.errors import TesseraError
from tests.coregrid.operations.agreement import RandomConv, compute_relative_error

LAYOUTS = [ttnn.HEIGHT_SHARDED, ttnn.WIDTH_SHARDED, ttnn.BLOCK_SHARDED]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_resnet50_convolution_equals_torch() -> None:
    device = ttnn.open_device("wormhole_n150")
    ran = dict.fromkeys(LAYOUTS, 0)
    distinct = {layer.conv for layer in list_convolutions("resnet50", 1)}
    for conv in distinct:
        problem = RandomConv(conv)
        expected = problem.compute_reference()
        for layout in LAYOUTS:
            config = ttnn.Conv2dConfig(dtype=ttnn.float32, weights_dtype=ttnn.float32, shard_layout=layout)
            try:
                output = problem.run(device, conv_config=config)
            except TesseraError as error:
                if "fit" not in str(error):
                    raise
                continue
            assert compute_relative_error(output, expected) < 1e-4, (conv, layout)
            ran[layout] += 1
    assert min(ran.values()) > len(distinct) // 2, ran
