"""The convolutions of VGG-16 (configuration D of Simonyan and Zisserman)."""

from torch import Tensor, nn

# fmt: off
CONFIGURATION_D = (
    64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M",
)
# fmt: on
"""The output channels of each 3 x 3 convolution; M is a pooling that halves the size."""


def vgg16_convolutions() -> nn.Sequential:
    """The thirteen convolutions with their activations and poolings, numbered as torchvision's."""
    layers: list[nn.Module] = []
    channels = 3
    for step in CONFIGURATION_D:
        if isinstance(step, int):
            layers += [nn.Conv2d(channels, step, kernel_size=3, padding=1), nn.ReLU(inplace=True)]
            channels = step
        else:
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
    return nn.Sequential(*layers)


class VGG16Features(nn.Module):
    """512 features of an RGB image of any size from 32 pixels on: the mean over all places.

    The weights are keyed as in torchvision's ``vgg16`` (``features.0.weight`` and so on).
    """

    def __init__(self) -> None:
        super().__init__()
        self.features = vgg16_convolutions()

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.features(images)  # (B, 512, H / 32, W / 32)
        return maps.mean((2, 3))
