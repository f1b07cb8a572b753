"""A network on features: one hidden layer."""

import math

from torch import Tensor, nn

from cosen.errors import InputError
from cosen.networks.checks import check_counts
from cosen.networks.initialisation import initialise
from cosen.networks.output import Network, NetworkOutput


class Head(Network):
    """Features in, one hidden layer with ReLU, logits out; its features are the hidden units.

    Args:
        in_features: Width of the features that come in.
        num_classes: How many logits.
        width: How many hidden units.
        dropout: The probability to drop a hidden unit in training.
        normalise: Whether each sample's features are scaled to a mean square of 1 first. Features
            of a pre-trained network differ in size a hundredfold between networks, and one
            learning rate cannot suit them all.
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
        if features.dim() != 2 or features.shape[1] != self.in_features:
            raise InputError(
                f"the head takes features of shape (batch, {self.in_features}), "
                f"but was given {tuple(features.shape)}"
            )
        if self.normalise:
            features = math.sqrt(self.in_features) * nn.functional.normalize(features, dim=1)
        hidden = self.hidden(features)  # (B, width)
        return NetworkOutput(self.output(hidden), hidden)
