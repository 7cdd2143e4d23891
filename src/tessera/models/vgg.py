"""VGG in plain torch: stages of 3x3 convolutions, with a max pooling after each stage."""

from __future__ import annotations

from torch import Tensor, nn

# By depth of the network: convolutions in each of the five stages.
CONVOLUTIONS_PER_STAGE = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
STAGE_CHANNELS = (64, 128, 256, 512, 512)


class VGG(nn.Module):
    """VGG: five convolutional stages and three fully connected layers."""

    def __init__(self, depth: int, *, norm: bool = False, num_classes: int = 1000, in_channels: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = in_channels
        for channels, convolutions in zip(STAGE_CHANNELS, CONVOLUTIONS_PER_STAGE[depth], strict=True):
            for _ in range(convolutions):
                layers.append(nn.Conv2d(inputs, channels, 3, padding=1))
                layers += [nn.BatchNorm2d(channels)] if norm else []
                layers.append(nn.ReLU(inplace=True))
                inputs = channels
            layers.append(nn.MaxPool2d(2, stride=2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(inputs * 49, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(4096, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))  # type: ignore[no-any-return]
