"""The paper's network: 18 weight layers on VGG configuration D (Sec. IV-B)."""

from typing import Literal, get_args

from torch import Tensor, nn

from cosen.errors import InputError, choices_hint
from cosen.networks.checks import check_counts, check_images
from cosen.networks.initialisation import initialise
from cosen.networks.output import Network, NetworkOutput
from cosen.networks.vgg import vgg16_convolutions

Reading = Literal["whole-vgg", "two-extra"]

PAPER_PARAMETERS = 139_000_000
"""What the paper says of its network ("about 139 million"); VGG-16 alone has 138.4 million."""

LEAST_SIZE = 32  # five poolings halve the size
POOLED = 7
IMAGENET_CLASSES = 1000


class PaperNetwork(Network):
    """VGG-16 with further fully connected layers, for RGB images of any size from 32 pixels on.

    The paper's account contradicts itself (docs/networks.md), so that there are two readings, both
    with 18 weight layers and 4096 penultimate features:

    - ``whole-vgg``: the thirteen convolutions, fc6, fc7 and the 1000-way layer of VGG-16, as many
      as the paper says were pre-trained (16); then a random 4096-wide layer and the output layer.
    - ``two-extra``: VGG-16 without its 1000-way layer, then two random 4096-wide layers and the
      output layer.

    A ReLU stands between every two weight layers, after the 1000-way layer of ``whole-vgg`` too:
    without it, that layer and the next would be one linear map of rank 1000. Dropout follows every
    4096-wide layer, as in VGG; the 1000-way layer, which has none there, has none here. Average
    pooling to 7 x 7 makes every input size fit fc6 (at 224 pixels it changes nothing).

    Weights are keyed as torchvision's ``vgg16`` (``features.*``, ``classifier.0``, ``.3``, ``.6``),
    the new ones ``extra.*`` and ``output.*``. All start random: see
    :func:`cosen.networks.weights.load_weights`.

    Args:
        num_classes: How many logits.
        reading: Which of the two readings.
        dropout: The probability to drop a unit of a wide layer in training.
        width: Units of the wide layers. With another than 4096, pre-trained weights fit the
            convolutions only.
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
        check_images(images, channels=3, least_size=LEAST_SIZE)
        maps = self.avgpool(self.features(images))  # (B, 512, 7, 7)
        features = self.extra(self.classifier(maps.flatten(1)))  # (B, 4096)
        return NetworkOutput(self.output(features), features)
