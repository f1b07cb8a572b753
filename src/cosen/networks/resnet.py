"""The residual network of 32 layers for CIFAR (He et al., Deep Residual Learning, Sec. 4.2)."""

from torch import Tensor, nn
from torch.nn import functional

from cosen.networks.checks import check_counts, check_images
from cosen.networks.initialisation import initialise
from cosen.networks.output import Network, NetworkOutput

BLOCKS_PER_STAGE = 5  # 6 n + 2 = 32 layers
WIDTHS = (16, 32, 64)


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut without weights (option A).

    Where the block halves the size and doubles the channels, the shortcut takes every second
    pixel and fills the new channels with zeros.
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
    """ResNet-32 as for CIFAR: 0.46 million parameters, 64 features, images of any size.

    Args:
        num_classes: How many logits.
        channels: 1 for grey images, 3 for RGB.
    """

    def __init__(self, num_classes: int, *, channels: int = 3) -> None:
        super().__init__()
        check_counts(num_classes=num_classes, channels=channels)
        self.channels = channels
        self.stem = nn.Sequential(
            nn.Conv2d(channels, WIDTHS[0], 3, padding=1, bias=False),
            nn.BatchNorm2d(WIDTHS[0]),
            nn.ReLU(inplace=True),
        )
        stages = []
        fan_in = WIDTHS[0]
        for width in WIDTHS:
            blocks = []
            for _ in range(BLOCKS_PER_STAGE):
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
