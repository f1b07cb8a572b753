"""A small convolutional network for small images."""

from torch import Tensor, nn

from cosen.networks.checks import check_counts, check_images
from cosen.networks.initialisation import initialise
from cosen.networks.output import Network, NetworkOutput

LEAST_SIZE = 4  # two poolings halve the size


def _convolution(fan_in: int, fan_out: int) -> list[nn.Module]:
    return [
        nn.Conv2d(fan_in, fan_out, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(fan_out),
        nn.ReLU(inplace=True),
    ]


class SmallCNN(Network):
    """Four 3 x 3 convolutions with batch normalisation, then the mean over all places.

    Meant for images of 8 to 64 pixels, such as digits; 131 thousand parameters. Nearly all work
    happens after the first pooling, which keeps it quick on a CPU.

    Args:
        num_classes: How many logits.
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
        check_images(images, channels=self.channels, least_size=LEAST_SIZE)
        maps = self.features(images)  # (B, 128, H / 4, W / 4)
        features = maps.mean((2, 3))
        return NetworkOutput(self.output(features), features)
