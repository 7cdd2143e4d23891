"""The models that come with Tessera, registered by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.models.registry import Factory, model

if TYPE_CHECKING:
    from torch import nn


@model("resnet18", "ResNet-18: basic blocks, 11.7 M parameters, 3.6 GFLOP an image")
def resnet18(num_classes: int = 1000, in_channels: int = 3) -> nn.Module:
    from tessera.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes=num_classes, in_channels=in_channels)


@model("resnet34", "ResNet-34: basic blocks, 21.8 M parameters, 7.3 GFLOP an image")
def resnet34(num_classes: int = 1000, in_channels: int = 3) -> nn.Module:
    from tessera.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, (3, 4, 6, 3), num_classes=num_classes, in_channels=in_channels)


@model("resnet50", "ResNet-50 v1.5: bottleneck blocks, 25.6 M parameters, 8.2 GFLOP an image")
def resnet50(num_classes: int = 1000, in_channels: int = 3) -> nn.Module:
    from tessera.models.resnet import Bottleneck, ResNet

    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes=num_classes, in_channels=in_channels)


@model("resnet101", "ResNet-101 v1.5: bottleneck blocks, 44.5 M parameters, 15.6 GFLOP an image")
def resnet101(num_classes: int = 1000, in_channels: int = 3) -> nn.Module:
    from tessera.models.resnet import Bottleneck, ResNet

    return ResNet(Bottleneck, (3, 4, 23, 3), num_classes=num_classes, in_channels=in_channels)


@model("resnet152", "ResNet-152 v1.5: bottleneck blocks, 60.2 M parameters, 23.0 GFLOP an image")
def resnet152(num_classes: int = 1000, in_channels: int = 3) -> nn.Module:
    from tessera.models.resnet import Bottleneck, ResNet

    return ResNet(Bottleneck, (3, 8, 36, 3), num_classes=num_classes, in_channels=in_channels)


@model("resnext50_32x4d", "ResNeXt-50: 32 groups of 4, 25.0 M parameters, 8.5 GFLOP an image")
def resnext50_32x4d(num_classes: int = 1000, in_channels: int = 3) -> nn.Module:
    from tessera.models.resnet import Bottleneck, ResNet

    return ResNet(Bottleneck, (3, 4, 6, 3), groups=32, group_width=4, num_classes=num_classes, in_channels=in_channels)


@model("resnext101_32x8d", "ResNeXt-101: 32 groups of 8, 88.8 M parameters, 32.8 GFLOP an image")
def resnext101_32x8d(num_classes: int = 1000, in_channels: int = 3) -> nn.Module:
    from tessera.models.resnet import Bottleneck, ResNet

    return ResNet(Bottleneck, (3, 4, 23, 3), groups=32, group_width=8, num_classes=num_classes, in_channels=in_channels)


def _efficientnet(number: int) -> Factory:
    def lay_out(
        num_classes: int = 1000,
        in_channels: int = 3,
        group_dim: int = 1,
        expand_ratio: int | None = None,
        norm: str = "batch",
    ) -> nn.Module:
        from tessera.models.efficientnet import efficientnet

        return efficientnet(
            number,
            num_classes=num_classes,
            in_channels=in_channels,
            group_dim=group_dim,
            expand_ratio=expand_ratio,
            norm=norm,
        )

    return lay_out


# by number: image size, parameters in millions, GFLOP an image
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
    )(_efficientnet(_number))


@model("mobilenet_v2", "MobileNet V2: inverted residuals, 3.5 M parameters, 0.6 GFLOP an image")
def mobilenet_v2(num_classes: int = 1000, in_channels: int = 3) -> nn.Module:
    from tessera.models.mobilenet import MobileNetV2

    return MobileNetV2(num_classes=num_classes, in_channels=in_channels)


@model("mobilenet_v3_large", "MobileNet V3 large: with squeeze and excitation, 5.5 M parameters, 0.4 GFLOP an image")
def mobilenet_v3_large(num_classes: int = 1000, in_channels: int = 3) -> nn.Module:
    from tessera.models.mobilenet import V3_LARGE, mobilenet_v3

    return mobilenet_v3(V3_LARGE, 1280, num_classes=num_classes, in_channels=in_channels)


@model("mobilenet_v3_small", "MobileNet V3 small: with squeeze and excitation, 2.5 M parameters, 0.1 GFLOP an image")
def mobilenet_v3_small(num_classes: int = 1000, in_channels: int = 3) -> nn.Module:
    from tessera.models.mobilenet import V3_SMALL, mobilenet_v3

    return mobilenet_v3(V3_SMALL, 1024, num_classes=num_classes, in_channels=in_channels)


def _vgg(depth: int, norm: bool) -> Factory:
    def lay_out(num_classes: int = 1000, in_channels: int = 3) -> nn.Module:
        from tessera.models.vgg import VGG

        return VGG(depth, norm=norm, num_classes=num_classes, in_channels=in_channels)

    return lay_out


# depth, parameters in millions without and with batch norm, GFLOP an image
for _depth, _plain, _normed, _gflop in (
    (11, 132.9, 132.9, 15.2),
    (13, 133.0, 133.1, 22.6),
    (16, 138.4, 138.4, 30.9),
    (19, 143.7, 143.7, 39.3),
):
    model(f"vgg{_depth}", f"VGG-{_depth}: {_plain} M parameters, {_gflop} GFLOP an image")(_vgg(_depth, norm=False))
    model(f"vgg{_depth}_bn", f"VGG-{_depth} with batch norm: {_normed} M parameters, {_gflop} GFLOP an image")(
        _vgg(_depth, norm=True)
    )


@model("unet", "U-Net, padded: four levels, 31.0 M parameters, 109.0 GFLOP an image of 256 x 256", image_size=256)
def unet(num_classes: int = 2, in_channels: int = 3, width: int = 64) -> nn.Module:
    from tessera.models.unet import UNet

    return UNet(num_classes=num_classes, in_channels=in_channels, width=width)
