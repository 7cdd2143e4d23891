"""Compare public networks on split images with the unsplit networks; prints one line of JSON per run.

Runs in the environment that `zoo.py` prepares. The argument is the number of runs to skip.
"""

from __future__ import annotations

import copy
import importlib
import json
import math
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from tessera.spatial import parallelize
from tessera.transport.in_process import InProcessTransport, run_ranks

TOLERANCE = 1e-9
MESHES = {"1x2": 2, "2x2": 4}
Build = Callable[[], tuple[nn.Module, tuple[Any, ...]]]

TIMM = {
    64: """
        resnet18 resnet50 resnetv2_50 resnext50_32x4d seresnet18 ecaresnet26t skresnet18 res2net50_26w_4s
        convnext_atto convnextv2_atto mobilenetv3_small_050 mobilenetv2_050 mobilenetv4_conv_small
        efficientnet_b0 efficientnet_lite0 tf_efficientnet_b0 efficientnetv2_rw_t mixnet_s fbnetc_100
        mnasnet_small spnasnet_100 hardcorenas_a tinynet_e lcnet_050 ghostnet_050 hrnet_w18_small dla34
        dla46_c dpn48b nf_resnet26 nf_regnet_b0 regnetx_002 regnety_002 edgenext_xx_small poolformer_s12
        poolformerv2_s12 densenet121 pvt_v2_b0 mobilevit_xxs mobilevitv2_050 focalnet_tiny_srf
        gcresnet33ts selecsls42 repvgg_a0 repvit_m0_9 fastvit_t8 mobileone_s0 eca_nfnet_l0 davit_tiny
        inception_next_tiny cspresnet50 cspdarknet53 darknet53 vovnet39a ese_vovnet19b_dw rexnet_100
        resnest14d resnetrs50 resnet18d resnetblur50 gernet_s caformer_s18 convformer_s18 starnet_s1
        rdnet_tiny hgnet_tiny hgnetv2_b0 efficientvit_m0 tresnet_m visformer_tiny tiny_vit_5m_224
        nextvit_small xception41 semnasnet_075 crossvit_9_240 mambaout_femto shvit_s1 swiftformer_xs
        edgenext_small eca_botnext26ts_256 lambda_resnet26t resnet26t
    """,
    224: """
        vit_tiny_patch16_224 swin_tiny_patch4_window7_224 coatnet_nano_rw_224 maxvit_tiny_rw_224
        xcit_nano_12_p16_224 levit_128s hiera_tiny_224 deit_tiny_patch16_224 mixer_s32_224 gmlp_ti16_224
        resmlp_12_224 convit_tiny cait_xxs24_224 coat_tiny pit_ti_224 twins_pcpvt_small sequencer2d_s
        efficientformer_l1 efficientformerv2_s0 mvitv2_tiny
    """,
    256: "halonet26t botnet26t_256",
}
TORCHVISION = """
        resnet18 squeezenet1_1 shufflenet_v2_x0_5 mnasnet0_5 mobilenet_v2 mobilenet_v3_small
        efficientnet_b0 regnet_y_400mf densenet121 convnext_tiny swin_t swin_v2_t wide_resnet50_2
    """
SEGMENTATION = "Unet UnetPlusPlus FPN Linknet PSPNet DeepLabV3 DeepLabV3Plus PAN MAnet UPerNet Segformer"


def list_networks() -> Iterator[tuple[str, Build]]:
    """Yield names and builders of networks; a builder returns the network and its arguments."""
    for size, names in TIMM.items():
        for name in names.split():
            yield f"timm {name}", lambda name=name, size=size: (_import("timm").create_model(name), _make_image(size))
    for name in TORCHVISION.split():
        yield (
            f"torchvision {name}",
            lambda name=name: (_import("torchvision.models").get_model(name, weights=None), _make_image(64)),
        )
    for name in ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"):
        yield f"torchvision {name}", lambda name=name: (_make_torchvision_segmentation(name), _make_image(64))
    for name in ("r3d_18", "mc3_18", "r2plus1d_18"):
        yield (
            f"torchvision {name}",
            lambda name=name: (
                _import("torchvision.models").get_model(name, weights=None),
                (torch.randn(1, 3, 4, 48, 48),),
            ),
        )
    for name in SEGMENTATION.split():
        yield f"segmentation {name}", lambda name=name: _make_segmentation(name)
    for encoder in ("timm-efficientnet-b0", "mit_b0", "mobilenet_v2", "densenet121"):
        yield f"segmentation Unet {encoder}", lambda encoder=encoder: _make_segmentation("Unet", encoder)
    yield from _list_monai()
    for name in ("yolov8n", "yolov8n-seg", "yolov5n", "yolov9t", "yolov10n", "yolo11n", "yolo12n", "yolov3-tiny"):
        yield f"ultralytics {name}", lambda name=name: _make_yolo(name)
    yield from _list_diffusers()


def _import(name: str) -> Any:
    _define_missing_operators()
    return importlib.import_module(name)


def _define_missing_operators(known: list[Any] = []) -> None:  # noqa: B006
    """Define torchvision's compiled operators: its import needs them, and the CUDA build's cannot be loaded."""
    if not known:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        known.append(library)


def _make_image(size: int, samples: int = 2) -> tuple[Tensor]:
    return (torch.randn(samples, 3, size, size),)


def _make_torchvision_segmentation(name: str) -> nn.Module:
    network: nn.Module = _import("torchvision.models").get_model(name, weights=None, weights_backbone=None)
    return network


def _make_segmentation(name: str, encoder: str = "resnet18") -> tuple[nn.Module, tuple[Any, ...]]:
    module = _import("segmentation_models_pytorch")
    return getattr(module, name)(encoder, encoder_weights=None), (torch.randn(2, 3, 128, 160),)


def _list_monai() -> Iterator[tuple[str, Build]]:
    volume, image = (1, 1, 32, 32, 32), (2, 1, 48, 48)
    for name, arguments, shape in (
        ("UNet", (3, 1, 2, (8, 16, 32), (2, 2)), volume),
        ("UNet", (2, 1, 2, (8, 16, 32), (2, 2)), image),
        ("BasicUNet", (3, 1, 2, (8, 8, 16, 16, 32, 8)), volume),
        ("DynUNet", (3, 1, 2, [3, 3, 3], [1, 2, 2], [2, 2]), volume),
        ("VNet", (3, 1, 2), volume),
        ("SegResNet", (3, 8, 1, 2), volume),
        ("SegResNetVAE", ((32, 32, 32), 8), volume),
        ("AttentionUnet", (2, 1, 2, (8, 16, 32), (2, 2)), image),
        ("DenseNet121", (2, 1, 2), (2, 1, 64, 64)),
        ("HighResNet", (3, 1, 2), (1, 1, 16, 16, 16)),
        ("UNETR", (1, 2, (32, 32, 32), 8, 48, 64, 4), volume),
        ("SwinUNETR", (1, 2), (1, 1, 64, 64, 64)),
        ("FlexibleUNet", (3, 2, "efficientnet-b0"), (2, 3, 64, 64)),
        ("EfficientNetBN", ("efficientnet-b0", False, True, 2, 1), (2, 1, 64, 64)),
        ("SENet154", (2, 1, 2), (2, 1, 64, 64)),
    ):

        def build(name: str = name, arguments: Any = arguments, shape: Any = shape) -> Any:
            return getattr(_import("monai.networks.nets"), name)(*arguments), (torch.randn(*shape),)

        yield f"monai {name} {len(shape) - 2}-D", build


def _make_yolo(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    tasks = _import("ultralytics.nn.tasks")
    kind = tasks.SegmentationModel if name.endswith("-seg") else tasks.DetectionModel
    return kind(f"{name}.yaml", verbose=False), (torch.randn(2, 3, 128, 128),)


class _Decoder(nn.Module):
    """The decoder of a VAE as a network."""

    def __init__(self, vae: nn.Module) -> None:
        super().__init__()
        self.vae = vae

    def forward(self, latent: Tensor) -> Any:
        return self.vae.decode(latent)


def _list_diffusers() -> Iterator[tuple[str, Build]]:
    small: dict[str, Any] = {"block_out_channels": (32, 64), "norm_num_groups": 8, "layers_per_block": 1}
    vae: dict[str, Any] = {
        **small,
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
        "latent_channels": 4,
    }

    def make(name: str, *arguments: Any, decoder: bool = False, **options: Any) -> Build:
        def build() -> tuple[nn.Module, tuple[Any, ...]]:
            network = getattr(_import("diffusers"), name)(**options)
            return (_Decoder(network) if decoder else network), arguments

        return build

    yield "diffusers AutoencoderKL decoder", make("AutoencoderKL", torch.randn(1, 4, 24, 24), decoder=True, **vae)
    yield "diffusers AutoencoderKL", make("AutoencoderKL", torch.randn(1, 3, 64, 48), **vae)
    yield (
        "diffusers UNet2DModel",
        make(
            "UNet2DModel",
            torch.randn(1, 3, 32, 32),
            torch.tensor(3),
            sample_size=32,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            **small,
        ),
    )
    yield (
        "diffusers UNet2DConditionModel",
        make(
            "UNet2DConditionModel",
            torch.randn(1, 4, 32, 32),
            torch.tensor(3),
            torch.randn(1, 7, 16).double(),
            sample_size=32,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
            cross_attention_dim=16,
            attention_head_dim=4,
            **small,
        ),
    )
    yield (
        "diffusers AutoencoderKLWan",
        make(
            "AutoencoderKLWan",
            torch.randn(1, 3, 1, 32, 32),
            base_dim=8,
            z_dim=4,
            dim_mult=[1, 2],
            num_res_blocks=1,
            temperal_downsample=[False],
        ),
    )
    yield "diffusers VQModel", make("VQModel", torch.randn(1, 3, 32, 32), norm_num_groups=8, block_out_channels=(32,))


def switch_off_random_parts(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
            module.p = 0.0
        for name in ("drop_prob", "drop_path_prob", "p", "dropout", "dropout_p"):
            if isinstance(getattr(module, name, None), float) and type(module).__module__.split(".")[0] != "torch":
                setattr(module, name, 0.0)
        if hasattr(module, "_global_params"):  # efficientnet_pytorch and MONAI
            module._global_params = module._global_params._replace(drop_connect_rate=0.0)
        if hasattr(module, "drop_connect_rate"):
            module.drop_connect_rate = 0.0


def collect_outputs(output: Any) -> list[Tensor]:
    if hasattr(output, "to_tuple"):
        output = output.to_tuple()
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def run_step(network: Any, image: Tensor, rest: tuple[Any, ...], gather: Callable[[Any], Any]) -> dict[str, Tensor]:
    """Run forward and backward; return outputs and gradients by name."""
    leaf = image.clone().requires_grad_()
    outputs = [gather(output) for output in collect_outputs(network(leaf, *rest))]
    generator = torch.Generator().manual_seed(5)
    total: Any = 0
    for output in outputs:
        if output.requires_grad:
            total = total + (output * torch.randn(output.shape, dtype=output.dtype, generator=generator)).sum()
    if isinstance(total, Tensor):
        total.backward()
    tensors = {f"output {number}": output.detach() for number, output in enumerate(outputs)}
    if leaf.grad is not None:
        tensors["gradient of the image"] = leaf.grad
    tensors |= {f"gradient of {n}": w.grad for n, w in network.named_parameters() if w.grad is not None}
    return tensors | {n: b for n, b in network.named_buffers() if b.is_floating_point()}


def compute_error(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> tuple[float, str]:
    """Return the largest error, relative to the largest value of each tensor or 1, and its tensor."""
    if actual.keys() != expected.keys():
        return math.inf, f"other tensors: {sorted(actual.keys() ^ expected.keys())[:3]}"
    worst = (0.0, "")
    for name, wanted in expected.items():
        got = actual[name]
        if got.shape != wanted.shape or got.dtype != wanted.dtype:
            return math.inf, name
        if wanted.numel() == 0:
            continue
        error = (got - wanted).abs().max().item() / max(1.0, wanted.abs().max().item())
        if not error <= worst[0]:
            worst = (error, name)
    return worst


def compare(build: Build, mesh: str, mode: str) -> dict[str, Any]:
    """Compare one network; return the verdict with its detail."""
    torch.manual_seed(torch.seed() % 2**31)
    try:
        network, (image, *others) = build()
        network = network.double().train(mode == "train")
        switch_off_random_parts(network)
        image, rest = image.double(), tuple(others)
        plain = copy.deepcopy(network)
        expected = run_step(plain, image, rest, lambda output: output)
        nudged = run_step(copy.deepcopy(network), image * (1 + 1e-15), rest, lambda output: output)
    except Exception as error:
        return {"verdict": "not runnable", "detail": f"{type(error).__name__}: {str(error).splitlines()[:1]}"}

    def run_rank(transport: InProcessTransport) -> tuple[float, str]:
        parallel = parallelize(copy.deepcopy(network), mesh, transport=transport)
        return compute_error(run_step(parallel, image, rest, parallel.gather), expected)

    try:
        error, where = max(run_ranks(MESHES[mesh], run_rank))
    except Exception as caught:
        place = traceback.extract_tb(caught.__traceback__)[-1]
        text = (
            f"{type(caught).__name__}: {str(caught).splitlines()[:1]} at {place.filename.split('/')[-1]}:{place.lineno}"
        )
        return {"verdict": "crashed", "detail": text}
    sensitivity, _ = compute_error(nudged, expected)
    # A network that amplifies a change of the image by one part in 1e15 to more than the tolerance cannot be compared.
    exact = error <= max(TOLERANCE, 100 * sensitivity)
    return {
        "verdict": "exact" if exact else "wrong",
        "error": error,
        "sensitivity": sensitivity,
        "detail": f"{error:.1e} {where}",
    }


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    skip = int(sys.argv[1])
    cases = [
        (name, build, mesh, mode) for name, build in list_networks() for mesh in MESHES for mode in ("train", "eval")
    ]
    for name, build, mesh, mode in cases[skip:]:
        print(json.dumps({"name": name, "mesh": mesh, "mode": mode} | compare(build, mesh, mode)), flush=True)
    print(json.dumps({"finished": True}), flush=True)


if __name__ == "__main__":
    main()
