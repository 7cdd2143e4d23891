"""Published times of convolutions and networks, to which predictions are compared. Nothing is fitted to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, MathFidelity, ShardLayout
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.cost.timeline import predict_time
from tessera.coregrid.formats import DataType, Layout, bfloat8_b, bfloat16
from tessera.coregrid.planning.plan import plan_one
from tessera.machine import load_machine

# Files of the repository tenstorrent/tt-metal at commit e4f9f0bb8d (2026-08-22), unless stated otherwise.
SOURCE_MODEL_TABLES = "tt-metal, models/README.md"
RESNET_TESTS = "tt-metal, models/demos/vision/classification/resnet50/{}/tests/test_perf_device_resnet50.py, 2026-08-22"
CLASSIFICATION = "tt-metal, models/demos/vision/classification"
CONV_TEST = "tt-metal, tests/ttnn/perf_tests/operations/conv/test_conv2d_device_perf.py, 2026-08-22"
MODELS = "tessera.coregrid.networks.published_models"
UNET_32, VGG_UNET = f"{MODELS}:unet_32", f"{MODELS}:vgg19_unet"
VGG_UNET_TEST = "tt-metal, models/demos/vision/segmentation/vgg_unet/{}/tests/perf/test_perf_vgg_unet.py, 2026-05"
N150, P150, E150 = "wormhole-n150", "blackhole-p150", "grayskull-e150"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRate:
    """Published images per second of the kernels of a network, without launches and transfers from and to the host.

    `dtype` is the format of activations and weights; all are computed with LoFi. `why` explains an error above 30 %.
    """

    network: str
    machine: str
    batch: int
    image: tuple[int, int] = (224, 224)
    rate: float
    source: str
    dtype: DataType = bfloat8_b
    why: str = ""


WHY_SEARCHED = (
    "the prediction is of the searched plan in bfloat8_b with LoFi; the layouts, blocks, slices and formats of the "
    "published program were set by hand and not taken over"
)
PUBLISHED_RATES = (
    PublishedRate(network="resnet50", machine=E150, batch=20, rate=7_700, source=SOURCE_MODEL_TABLES),
    PublishedRate(network="resnet50", machine=N150, batch=16, rate=6_335, source=RESNET_TESTS.format("wormhole")),
    PublishedRate(network="resnet50", machine=P150, batch=16, rate=11_864, source=RESNET_TESTS.format("blackhole")),
    PublishedRate(network="resnet50", machine=P150, batch=32, rate=14_958, source=RESNET_TESTS.format("blackhole")),
    PublishedRate(
        network="mobilenet_v2",
        machine=N150,
        batch=10,
        rate=3_730,
        source=f"{CLASSIFICATION}/mobilenetv2/tests/perf/test_perf_mobilenetv2.py, 2026-04-03",
    ),
    PublishedRate(
        network="vgg11",
        machine=N150,
        batch=1,
        rate=448,
        source=f"{CLASSIFICATION}/vgg/tests/test_perf_vgg.py, 2026-04-03",
        dtype=bfloat16,
    ),
    PublishedRate(
        network="vgg16",
        machine=N150,
        batch=1,
        rate=365,
        source=f"{CLASSIFICATION}/vgg/tests/test_perf_vgg.py, 2026-04-03",
        dtype=bfloat16,
    ),
    PublishedRate(
        network=UNET_32,
        machine=N150,
        batch=1,
        image=(480, 640),
        rate=206,
        source="tt-metal, models/demos/vision/segmentation/vanilla_unet/tests/test_unet_perf.py, 2026-08-22",
    ),
    PublishedRate(
        network=UNET_32,
        machine=P150,
        batch=1,
        image=(480, 640),
        rate=400,
        source="tt-metal, models/demos/vision/segmentation/vanilla_unet/tests/test_unet_perf.py, 2026-08-22",
        why=WHY_SEARCHED,
    ),
    PublishedRate(
        network=VGG_UNET,
        machine=N150,
        batch=1,
        image=(256, 256),
        rate=302,
        source=VGG_UNET_TEST.format("wormhole"),
        why=WHY_SEARCHED,
    ),
    PublishedRate(
        network=VGG_UNET,
        machine=P150,
        batch=1,
        image=(256, 256),
        rate=551,
        source=VGG_UNET_TEST.format("blackhole"),
        why=WHY_SEARCHED,
    ),
)


def find_published_rate(network: str, machine: str, batch: int, image: tuple[int, int]) -> PublishedRate | None:
    """Return the published images/s for a network, machine, batch size and image size, or None."""
    for row in PUBLISHED_RATES:
        if (row.network, row.machine, row.batch, row.image) == (network, machine, batch, image):
            return row
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTime:
    """Published kernel time of one convolution in seconds, without its halo exchange. The input is tiled bfloat16."""

    name: str
    machine: str
    seconds: float
    conv: Convolution
    config: Conv2dConfig
    compute: ComputeConfig
    source: str
    why: str = ""


def _make_conv(size: tuple[int, int], inputs: int, outputs: int, **options: Any) -> Convolution:
    padding = options.pop("padding", 1)
    return Convolution(
        batch=1,
        height=size[0],
        width=size[1],
        in_channels=inputs,
        out_channels=outputs,
        kernel=(3, 3),
        padding=((padding, padding), (padding, padding)),
        **options,
    )


_LOFI = ComputeConfig(math_fidelity=MathFidelity.LoFi)
_TESTED = (
    (
        "VAE of SDXL",
        {N150: 67e-6, P150: 28e-6},
        _make_conv((128, 128), 4, 512),
        Conv2dConfig(weights_dtype=bfloat8_b, shard_layout=ShardLayout.HEIGHT, enable_split_reader=True),
        _LOFI,
    ),
    (
        "U-Net",
        {N150: 87e-6, P150: 32e-6},
        _make_conv((1056, 160), 4, 16),
        Conv2dConfig(
            dtype=bfloat8_b,
            weights_dtype=bfloat8_b,
            shard_layout=ShardLayout.HEIGHT,
            enable_act_double_buffer=True,
            enable_activation_reuse=True,
            enable_split_reader=True,
        ),
        _LOFI,
    ),
    (
        "SDXL",
        {N150: 115e-6, P150: 53e-6},
        _make_conv((64, 64), 640, 640, stride=(2, 2)),
        Conv2dConfig(
            weights_dtype=bfloat8_b,
            shard_layout=ShardLayout.BLOCK,
            enable_act_double_buffer=True,
            enable_weights_double_buffer=True,
            enable_split_reader=True,
        ),
        ComputeConfig(math_fidelity=MathFidelity.HiFi2, fp32_dest_acc_en=True),
    ),
    (
        "SegFormer",
        {N150: 74e-6, P150: 37e-6},
        _make_conv((8, 8), 576, 576, padding=0, groups=576),
        Conv2dConfig(shard_layout=ShardLayout.WIDTH),
        _LOFI,
    ),
)
WHY_READER = (
    "the time between two reads of a window is that of the maker's test of 192-byte reads; this test reads 48 bytes"
)
WHY_WEIGHTS = "18 cores read weights at the measured rate of all cores, which fewer cores may exceed"
PUBLISHED_TIMES = (
    *(
        PublishedTime(
            name=name,
            machine=machine,
            seconds=seconds,
            conv=conv,
            config=config,
            compute=compute,
            source=CONV_TEST,
            why={("U-Net", N150): WHY_READER, ("SegFormer", P150): WHY_WEIGHTS}.get((name, machine), ""),
        )
        for name, times, conv, config, compute in _TESTED
        for machine, seconds in times.items()
    ),
    *(
        PublishedTime(
            name=f"256 to 128 channels, {layout}",
            machine=N150,
            seconds=seconds,
            conv=_make_conv((128, 128), 256, 128),
            config=Conv2dConfig(
                shard_layout=layout, act_block_h_override=block, deallocate_activation=True, enable_split_reader=True
            ),
            compute=ComputeConfig(),
            source="tt-mlir, issues 7474 and 7701",
        )
        for layout, seconds, block in ((ShardLayout.HEIGHT, 220e-6, 32), (ShardLayout.BLOCK, 864e-6, 0))
    ),
)


def predict_published_time(row: PublishedTime) -> float:
    """Predict the kernel time of a published convolution in seconds, without its halo exchange."""
    plan = plan_one(
        row.conv,
        load_machine(row.machine),
        row.config,
        row.compute,
        input_dtype=bfloat16,
        input_layout=Layout.TILE,
        bias=True,
    )
    predicted = predict_time(plan)
    return predicted.seconds - predicted.busy["halo"]
