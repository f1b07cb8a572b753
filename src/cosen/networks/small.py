"""Networks that are small enough to train from scratch: SmallCNN, ResNet32 and Head."""

import math

from torch import Tensor, nn
from torch.nn import functional

from cosen.errors import InputError
from cosen.networks.network import Network, NetworkOutput, check_counts, check_images, initialise


def _convolution(fan_in: int, fan_out: int) -> list[nn.Module]:
    return [
        nn.Conv2d(fan_in, fan_out, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(fan_out),
        nn.ReLU(inplace=True),
    ]


class SmallCNN(Network):
    """Four 3 x 3 convolutions with batch normalisation, then global average pooling.

    For images of 8 to 64 pixels, such as digits; 131 thousand parameters. Most of the work happens
    after the first pooling, so it is fast on a CPU.

    Args:
        num_classes: Number of logits.
        channels: 1 for grey images, 3 for RGB.
    """

    def __init__(self, num_classes: int, *, channels: int = 3) -> None:
        super().__init__()
        check_counts(num_classes=num_classes, channels=channels)
        self.channels = channels
        self.features = nn.Sequential(
            *_convolution(channels, 32),
            nn.MaxPool2d(2),
            *_convolution(32, 64),
            *_convolution(64, 64),
            nn.MaxPool2d(2),
            *_convolution(64, 128),
        )
        self.output = nn.Linear(128, num_classes)
        initialise(self, output=self.output)

    def forward(self, images: Tensor) -> NetworkOutput:
        check_images(images, channels=self.channels, least_size=4)  # two poolings halve the size
        maps = self.features(images)  # (B, 128, H / 4, W / 4)
        features = maps.mean((2, 3))
        return NetworkOutput(self.output(features), features)


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut without weights (option A).

    If the block halves the size and doubles the channels, the shortcut takes every second pixel
    and fills the new channels with zeros.
    """

    def __init__(self, fan_in: int, fan_out: int, *, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.new_channels = fan_out - fan_in
        self.conv1 = nn.Conv2d(fan_in, fan_out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(fan_out)
        self.conv2 = nn.Conv2d(fan_out, fan_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(fan_out)

    def forward(self, maps: Tensor) -> Tensor:
        residual = functional.relu(self.bn1(self.conv1(maps)), inplace=True)
        residual = self.bn2(self.conv2(residual))
        shortcut = maps[:, :, :: self.stride, :: self.stride]
        if self.new_channels:
            shortcut = functional.pad(shortcut, (0, 0, 0, 0, 0, self.new_channels))
        return functional.relu(residual + shortcut, inplace=True)


class ResNet32(Network):
    """ResNet-32 for CIFAR (He et al., Deep Residual Learning, Sec. 4.2), for any image size.

    0.46 million parameters, 64 features.

    Args:
        num_classes: Number of logits.
        channels: 1 for grey images, 3 for RGB.
    """

    def __init__(self, num_classes: int, *, channels: int = 3) -> None:
        super().__init__()
        check_counts(num_classes=num_classes, channels=channels)
        self.channels = channels
        self.stem = nn.Sequential(*_convolution(channels, 16))
        stages = []
        fan_in = 16
        for width in (16, 32, 64):
            blocks = []
            for _ in range(5):  # 3 stages of 5 blocks: 6 * 5 + 2 = 32 layers
                blocks.append(ResidualBlock(fan_in, width, stride=1 if width == fan_in else 2))
                fan_in = width
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.output = nn.Linear(fan_in, num_classes)
        initialise(self, output=self.output)

    def forward(self, images: Tensor) -> NetworkOutput:
        check_images(images, channels=self.channels)
        maps = self.stages(self.stem(images))  # (B, 64, H / 4, W / 4)
        features = maps.mean((2, 3))
        return NetworkOutput(self.output(features), features)


class LinearHead(Network):
    """An output layer on input features, and nothing else.

    Args:
        in_features: Width of the input features.
        num_classes: Number of logits.
    """

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        check_counts(in_features=in_features, num_classes=num_classes)
        self.in_features = in_features
        self.output = nn.Linear(in_features, num_classes)
        initialise(self, output=self.output)

    def forward(self, features: Tensor) -> NetworkOutput:
        check_features(features, self.in_features)
        return NetworkOutput(self.output(features), features)


def check_features(features: Tensor, width: int) -> None:
    """Raise an error unless features are ``(B, width)``."""
    if features.dim() != 2 or features.shape[1] != width:
        raise InputError(
            f"the head needs features of shape (batch, {width}), but got {tuple(features.shape)}"
        )


class Head(Network):
    """One hidden layer with ReLU on input features; its own features are the hidden units.

    Args:
        in_features: Width of the input features.
        num_classes: Number of logits.
        width: Number of hidden units.
        dropout: Dropout probability of the hidden units.
        normalise: Whether to scale the features of each sample to a mean square of 1 first. The
            features of pre-trained networks differ in size by up to a factor of 100, and no single
            learning rate suits them all.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        width: int = 512,
        dropout: float = 0.0,
        normalise: bool = False,
    ) -> None:
        super().__init__()
        check_counts(in_features=in_features, num_classes=num_classes, width=width)
        self.in_features = in_features
        self.normalise = normalise
        self.hidden = nn.Sequential(
            nn.Linear(in_features, width), nn.ReLU(inplace=True), nn.Dropout(dropout)
        )
        self.output = nn.Linear(width, num_classes)
        initialise(self, output=self.output)

    def forward(self, features: Tensor) -> NetworkOutput:
        check_features(features, self.in_features)
        if self.normalise:
            features = math.sqrt(self.in_features) * nn.functional.normalize(features, dim=1)
        hidden = self.hidden(features)  # (B, width)
        return NetworkOutput(self.output(hidden), hidden)
