"""The parts of the method ``cosen``, one by one: what each of them adds.

Each is a method of its own, asked for as ``cosen.study.ablation:Frequencies``; ``cosen reproduce
TABLE --ablation`` runs them all beside the others.
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
    fixed: ClassVar[dict[str, Any]] = {"learn_frequency": False, "margin": 0.0}


class LearnedFrequencies(Part):
    """The same with their strength learned."""

    name = "cosen-strength"
    description = "frequencies, their strength learned"
    fixed: ClassVar[dict[str, Any]] = {"margin": 0.0}


class LearnedMargin(Part):
    """Frequencies as they are, with a learned margin."""

    name = "cosen-margin"
    description = "frequencies, and a learned margin"
    fixed: ClassVar[dict[str, Any]] = {"learn_frequency": False}


class FixedMargin(Part):
    """Both, but the margin of the rarest class is 4 whatever validation says."""

    name = "cosen-margin-4"
    description = "frequencies, their strength learned, and a fixed margin"
    fixed: ClassVar[dict[str, Any]] = {"margin": 4.0}


class WithErrors(Part):
    """All of it, and the pairwise errors R as the paper weighs them."""

    name = "cosen-errors"
    description = "frequencies, strength and margin learned, and pairwise errors"
    fixed: ClassVar[dict[str, Any]] = {"errors": 1.0}


PARTS = (Frequencies, LearnedFrequencies, LearnedMargin, FixedMargin, WithErrors)
"""In the order in which they add up."""

ASKED = tuple(f"{part.__module__}:{part.__name__}" for part in PARTS)
"""What they are asked for by."""

ORDER = ("baseline", *(part.name for part in PARTS[:3]), "cosen", *(p.name for p in PARTS[3:]))
"""The lines of a table of them."""
