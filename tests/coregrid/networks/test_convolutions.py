"""Every convolution of ResNet-50 on the cores, in every layout that fits: torch's numbers."""

from __future__ import annotations

import pytest

import tessera.coregrid as ttnn
from tessera.coregrid.networks.layers import convolutions
from tessera.errors import TesseraError
from tests.coregrid.operations.agreement import Problem, relative_error

LAYOUTS = [ttnn.HEIGHT_SHARDED, ttnn.WIDTH_SHARDED, ttnn.BLOCK_SHARDED]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_resnet50_layer_by_layer() -> None:
    device = ttnn.open_device("wormhole_n150")
    ran = dict.fromkeys(LAYOUTS, 0)
    distinct = {layer.conv for layer in convolutions("resnet50", 1)}
    for conv in distinct:
        problem = Problem(conv)
        expected = problem.expected()
        for layout in LAYOUTS:
            config = ttnn.Conv2dConfig(dtype=ttnn.float32, weights_dtype=ttnn.float32, shard_layout=layout)
            try:
                found = problem.run(device, conv_config=config)
            except TesseraError as error:
                if "fit" not in str(error):
                    raise
                continue
            assert relative_error(found, expected) < 1e-4, (conv, layout)
            ran[layout] += 1
    assert min(ran.values()) > len(distinct) // 2, ran
