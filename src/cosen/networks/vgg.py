"""VGG-16: its features, and the paper's network of 18 weight layers on top of it (Sec. IV-B)."""

from typing import Literal, get_args

from torch import Tensor, nn

from cosen.errors import InputError, choices_hint
from cosen.networks.network import Network, NetworkOutput, check_counts, check_images, initialise

# fmt: off
CONFIGURATION_D = (
    64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M",
)
# fmt: on
"""Output channels of each 3 x 3 convolution (Simonyan and Zisserman); M is a 2 x 2 pooling."""

Reading = Literal["whole-vgg", "two-extra"]

PAPER_PARAMETERS = 139_000_000
"""The paper's figure for its network ("about 139 million"); VGG-16 alone has 138.4 million."""

POOLED = 7
IMAGENET_CLASSES = 1000


def vgg16_convolutions() -> nn.Sequential:
    """Build the 13 convolutions, activations and poolings, numbered as in torchvision."""
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
    """Convolutions of VGG-16 with global average pooling: 512 features per RGB image.

    Images need at least 32 x 32 pixels. The weights have torchvision's names
    (``features.0.weight`` and so on).
    """

    def __init__(self) -> None:
        super().__init__()
        self.features = vgg16_convolutions()

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.features(images)  # (B, 512, H / 32, W / 32)
        return maps.mean((2, 3))


class PaperNetwork(Network):
    """VGG-16 with additional fully connected layers, for RGB images of at least 32 x 32 pixels.

    The paper's description contradicts itself (docs/networks.md), so there are two readings. Both
    have 18 weight layers and 4096 penultimate features:

    - ``whole-vgg``: the 13 convolutions, fc6, fc7 and the 1000-way layer of VGG-16 (the paper has
      16 pre-trained layers as well), then a random 4096-wide layer and the output layer.
    - ``two-extra``: VGG-16 without its 1000-way layer, then two random 4096-wide layers and the
      output layer.

    There is a ReLU between any two weight layers, also after the 1000-way layer of ``whole-vgg``:
    without it, this layer and the next would be one linear map of rank 1000. Dropout follows every
    4096-wide layer, but not the 1000-way layer, as in VGG. Average pooling to 7 x 7 makes every
    input size fit fc6; at 224 pixels it changes nothing.

    The weights have the names of torchvision's ``vgg16`` (``features.*``, ``classifier.0``, ``.3``,
    ``.6``); the new ones are ``extra.*`` and ``output.*``. All are random at first: see
    :func:`cosen.networks.weights.load_weights`.

    Args:
        num_classes: Number of logits.
        reading: Which of the two readings.
        dropout: Dropout probability after each wide layer.
        width: Units of the wide layers. If it is not 4096, pre-trained weights fit the convolutions
            only.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        reading: Reading = "whole-vgg",
        dropout: float = 0.5,
        width: int = 4096,
    ) -> None:
        super().__init__()
        if reading not in get_args(Reading):
            raise InputError(
                f"there is no reading {reading!r} of the paper's network"
                f"{choices_hint(reading, get_args(Reading))}"
            )
        check_counts(num_classes=num_classes, width=width)

        def wide(fan_in: int) -> list[nn.Module]:
            return [nn.Linear(fan_in, width), nn.ReLU(inplace=True), nn.Dropout(dropout)]

        self.reading = reading
        self.features = vgg16_convolutions()
        self.avgpool = nn.AdaptiveAvgPool2d(POOLED)
        fc6_and_fc7 = [*wide(512 * POOLED * POOLED), *wide(width)]
        if reading == "whole-vgg":
            self.classifier = nn.Sequential(*fc6_and_fc7, nn.Linear(width, IMAGENET_CLASSES))
            self.extra = nn.Sequential(nn.ReLU(inplace=True), *wide(IMAGENET_CLASSES))
        else:
            self.classifier = nn.Sequential(*fc6_and_fc7)
            self.extra = nn.Sequential(*wide(width), *wide(width))
        self.output = nn.Linear(width, num_classes)
        initialise(self, output=self.output)

    def forward(self, images: Tensor) -> NetworkOutput:
        check_images(images, channels=3, least_size=32)  # five poolings halve the size
        maps = self.avgpool(self.features(images))  # (B, 512, 7, 7)
        features = self.extra(self.classifier(maps.flatten(1)))  # (B, 4096)
        return NetworkOutput(self.output(features), features)
