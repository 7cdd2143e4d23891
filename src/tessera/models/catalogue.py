"""The models that come with Tessera, registered by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.models.registry import model

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
