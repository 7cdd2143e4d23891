"""The registered models that are shipped with Tessera."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.models.registry import Factory, model

if TYPE_CHECKING:
    from torch import nn


def _make_resnet_factory(
    depths: tuple[int, int, int, int], *, bottleneck: bool, groups: int = 1, group_width: int = 64
) -> Factory:
    def build_layers(num_classes: int = 1000, in_channels: int = 3) -> nn.Module:
        from tessera.models.resnet import BasicBlock, Bottleneck, ResNet

        return ResNet(
            Bottleneck if bottleneck else BasicBlock,
            depths,
            groups=groups,
            group_width=group_width,
            num_classes=num_classes,
            in_channels=in_channels,
        )

    return build_layers


# By depth: blocks per stage, parameters in millions, GFLOP per image.
for _depth, (_blocks, _millions, _gflop) in {
    18: ((2, 2, 2, 2), 11.7, 3.6),
    34: ((3, 4, 6, 3), 21.8, 7.3),
    50: ((3, 4, 6, 3), 25.6, 8.2),
    101: ((3, 4, 23, 3), 44.5, 15.6),
    152: ((3, 8, 36, 3), 60.2, 23.0),
}.items():
    _title = f"ResNet-{_depth} v1.5: bottleneck blocks" if _depth >= 50 else f"ResNet-{_depth}: basic blocks"
    model(f"resnet{_depth}", f"{_title}, {_millions} M parameters, {_gflop} GFLOP an image")(
        _make_resnet_factory(_blocks, bottleneck=_depth >= 50)
    )

model("resnext50_32x4d", "ResNeXt-50: 32 groups of 4, 25.0 M parameters, 8.5 GFLOP an image")(
    _make_resnet_factory((3, 4, 6, 3), bottleneck=True, groups=32, group_width=4)
)
model("resnext101_32x8d", "ResNeXt-101: 32 groups of 8, 88.8 M parameters, 32.8 GFLOP an image")(
    _make_resnet_factory((3, 4, 23, 3), bottleneck=True, groups=32, group_width=8)
)


def _make_efficientnet_factory(number: int) -> Factory:
    def build_layers(
        num_classes: int = 1000,
        in_channels: int = 3,
        group_dim: int = 1,
        expand_ratio: int | None = None,
        norm: str = "batch",
    ) -> nn.Module:
        from tessera.models.efficientnet import build_efficientnet

        return build_efficientnet(
            number,
            num_classes=num_classes,
            in_channels=in_channels,
            group_dim=group_dim,
            expand_ratio=expand_ratio,
            norm=norm,
        )

    return build_layers


# By B-number: image size, parameters in millions, GFLOP per image.
for _number, (_size, _millions, _gflop) in enumerate(
    (
        (224, 5.3, 0.8),
        (240, 7.8, 1.4),
        (288, 9.1, 2.2),
        (300, 12.2, 3.7),
        (380, 19.3, 8.8),
        (456, 30.4, 20.5),
        (528, 43.0, 38.1),
        (600, 66.3, 75.5),
    )
):
    model(
        f"efficientnet_b{_number}",
        f"EfficientNet-B{_number}: {_millions} M parameters, {_gflop} GFLOP an image of {_size} x {_size}",
        image_size=_size,
    )(_make_efficientnet_factory(_number))


@model("mobilenet_v2", "MobileNet V2: inverted residuals, 3.5 M parameters, 0.6 GFLOP an image")
def mobilenet_v2(num_classes: int = 1000, in_channels: int = 3) -> nn.Module:
    from tessera.models.mobilenet import MobileNetV2

    return MobileNetV2(num_classes=num_classes, in_channels=in_channels)


@model("mobilenet_v3_large", "MobileNet V3 large: with squeeze and excitation, 5.5 M parameters, 0.4 GFLOP an image")
def mobilenet_v3_large(num_classes: int = 1000, in_channels: int = 3) -> nn.Module:
    from tessera.models.mobilenet import V3_LARGE, build_mobilenet_v3

    return build_mobilenet_v3(V3_LARGE, 1280, num_classes=num_classes, in_channels=in_channels)


@model("mobilenet_v3_small", "MobileNet V3 small: with squeeze and excitation, 2.5 M parameters, 0.1 GFLOP an image")
def mobilenet_v3_small(num_classes: int = 1000, in_channels: int = 3) -> nn.Module:
    from tessera.models.mobilenet import V3_SMALL, build_mobilenet_v3

    return build_mobilenet_v3(V3_SMALL, 1024, num_classes=num_classes, in_channels=in_channels)


def _make_vgg_factory(depth: int, norm: bool) -> Factory:
    def build_layers(num_classes: int = 1000, in_channels: int = 3) -> nn.Module:
        from tessera.models.vgg import VGG

        return VGG(depth, norm=norm, num_classes=num_classes, in_channels=in_channels)

    return build_layers


# Depth, parameters in millions (without batch norm, with batch norm), GFLOP per image.
for _depth, _plain, _normed, _gflop in (
    (11, 132.9, 132.9, 15.2),
    (13, 133.0, 133.1, 22.6),
    (16, 138.4, 138.4, 30.9),
    (19, 143.7, 143.7, 39.3),
):
    model(f"vgg{_depth}", f"VGG-{_depth}: {_plain} M parameters, {_gflop} GFLOP an image")(
        _make_vgg_factory(_depth, norm=False)
    )
    model(f"vgg{_depth}_bn", f"VGG-{_depth} with batch norm: {_normed} M parameters, {_gflop} GFLOP an image")(
        _make_vgg_factory(_depth, norm=True)
    )


@model("unet", "U-Net, padded: four levels, 31.0 M parameters, 109.0 GFLOP an image of 256 x 256", image_size=256)
def unet(num_classes: int = 2, in_channels: int = 3, width: int = 64) -> nn.Module:
    from tessera.models.unet import UNet

    return UNet(num_classes=num_classes, in_channels=in_channels, width=width)
