"""The parts of the method ``cosen``, one by one: what each of them adds.

Each is a method of its own, asked for as ``cosen.paper.ablation:Frequencies``; ``cosen reproduce
TABLE --ablation`` runs them beside the others.
"""

from typing import Any, ClassVar

from cosen.methods.learned_costs import Cosen


class Part(Cosen):
    """The method with some of its parts fixed or left out."""

    fixed: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__(**self.fixed)


class Frequencies(Part):
    """Rows proportional to the class frequencies, and nothing learned."""

    name = "cosen-frequencies"
    description = "frequencies alone, nothing learned"
    fixed: ClassVar[dict[str, Any]] = {
        "learn_frequency": False,
        "margin": 0.0,
        "output": "linear",
    }


class LearnedFrequencies(Part):
    """The same with their strength learned."""

    name = "cosen-strength"
    description = "frequencies, their strength learned"
    fixed: ClassVar[dict[str, Any]] = {"margin": 0.0, "output": "linear"}


class LearnedMargin(Part):
    """Frequencies as they are, with a learned margin."""

    name = "cosen-margin"
    description = "frequencies, and a learned margin"
    fixed: ClassVar[dict[str, Any]] = {"learn_frequency": False, "output": "linear"}


class FixedMargin(Part):
    """The strength learned, but the margin of the rarest class is 4 whatever validation says."""

    name = "cosen-margin-4"
    description = "frequencies, their strength learned, and a margin of 4"
    fixed: ClassVar[dict[str, Any]] = {"margin": 4.0, "output": "linear"}


class LinearOutput(Part):
    """Strength and margin learned; it lacks only the cosines of a network that is trained whole."""

    name = "cosen-linear"
    description = "frequencies, strength and margin learned"
    fixed: ClassVar[dict[str, Any]] = {"output": "linear"}


class WithErrors(Part):
    """All of it, and the pairwise errors R as the paper weighs them."""

    name = "cosen-errors"
    description = "all of `cosen`, and pairwise errors"
    fixed: ClassVar[dict[str, Any]] = {"errors": 1.0}


PARTS = (
    Frequencies,
    LearnedFrequencies,
    LearnedMargin,
    FixedMargin,
    LinearOutput,
    WithErrors,
)
"""In the order in which they add up."""

ORDER = ("baseline", *(part.name for part in PARTS[:-1]), Cosen.name, WithErrors.name)
"""The lines of a table of them."""

STEPS = (
    (Frequencies.name, "baseline"),
    (LearnedFrequencies.name, Frequencies.name),
    (LinearOutput.name, LearnedFrequencies.name),
    (Cosen.name, LinearOutput.name),
    (Cosen.name, Frequencies.name),
    (FixedMargin.name, LearnedFrequencies.name),
    (WithErrors.name, Cosen.name),
)
"""What adds to what: the parts one after another, all that is learned, then what was left out."""

DESCRIPTIONS = {part.name: part.description for part in PARTS} | {
    Cosen.name: "frequencies, strength and margin learned, and an output layer of cosines where "
    "the network learns its features",
}
"""What each of them has."""

ON_FROZEN_FEATURES = "head"
"""The network whose features are not learned, and whose output layer ``cosen`` leaves linear."""


def parts_for(network: str) -> tuple[type[Part], ...]:
    """The parts that differ from ``cosen`` on a network: on a head, its output layer does not.

    Example:
        >>> LinearOutput in parts_for("small-cnn"), LinearOutput in parts_for("head")
        (True, False)
    """
    is_frozen = network == ON_FROZEN_FEATURES
    return tuple(part for part in PARTS if not (is_frozen and part is LinearOutput))


def asked_by(part: type[Part]) -> str:
    """What a part is asked for by.

    Example:
        >>> asked_by(Frequencies)
        'cosen.paper.ablation:Frequencies'
    """
    return f"{part.__module__}:{part.__name__}"
