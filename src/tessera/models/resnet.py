"""ResNet (v1.5) and ResNeXt in plain torch.

Residual networks of four stages. In v1.5 a bottleneck block downsamples in its 3x3 convolution instead of the first
1x1, which would discard three quarters of its input. Modules are named as in torchvision, so its state dicts load
unchanged. No branch depends on data, so torch.fx can trace the networks.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut: the block of ResNet-18 and 34."""

    expansion: ClassVar[int] = 1

    def __init__(self, inputs: int, planes: int, stride: int, groups: int, width: int) -> None:
        super().__init__()
        assert groups == 1, "grouped convolutions belong to bottleneck blocks"
        assert width == planes
        self.conv1 = nn.Conv2d(inputs, planes, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = _build_last_norm(planes)
        self.downsample = _build_shortcut(inputs, planes * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.relu(out + shortcut)  # type: ignore[no-any-return]


class Bottleneck(nn.Module):
    """1x1, 3x3 (grouped for ResNeXt) and 1x1 convolutions with a shortcut: the block of ResNet-50 and deeper."""

    expansion: ClassVar[int] = 4

    def __init__(self, inputs: int, planes: int, stride: int, groups: int, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, planes * self.expansion, 1, bias=False)
        self.bn3 = _build_last_norm(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _build_shortcut(inputs, planes * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.relu(out + shortcut)  # type: ignore[no-any-return]


class ResNet(nn.Module):
    """ResNet: a stem, four stages of `depths` blocks with 64 to 512 planes, and a classifier.

    `groups` and `group_width` (the width of one group at 64 planes) turn a ResNet into a ResNeXt.
    """

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        depths: tuple[int, int, int, int],
        *,
        groups: int = 1,
        group_width: int = 64,
        num_classes: int = 1000,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        stages, inputs = [], 64
        for stage, depth in enumerate(depths):
            planes = 64 << stage
            width = planes * group_width // 64 * groups
            blocks = []
            for number in range(depth):
                stride = 2 if stage > 0 and number == 0 else 1
                blocks.append(block(inputs, planes, stride, groups, width))
                inputs = planes * block.expansion
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))  # type: ignore[no-any-return]


def _build_shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """Build the projection of a shortcut, or return None if the input and output of the block have equal shapes."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


def _build_last_norm(planes: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(planes)
    norm.ends_branch = True  # type: ignore[assignment]  # scaled down by `weights.initialise_weights`
    return norm
