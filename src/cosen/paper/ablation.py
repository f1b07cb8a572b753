"""Ablation of the method ``cosen``: the same method with parts fixed or removed.

``cosen reproduce TABLE --ablation`` runs all variants.
"""

from cosen.methods import method_label
from cosen.networks import NETWORKS


def _cosen(**options: object) -> str:
    return method_label("cosen", options)


FREQUENCIES = _cosen(learn_tau=False, margin=0, output="linear", separability=0)
LEARNED_TAU = _cosen(margin=0, output="linear", separability=0)
LEARNED_MARGIN = _cosen(learn_tau=False, output="linear", separability=0)
FIXED_MARGIN = _cosen(margin=4, output="linear", separability=0)
LINEAR_OUTPUT = _cosen(output="linear", separability=0)
WITHOUT_WEIGHTS = _cosen(weighting=0)
WITHOUT_SEPARABILITY = _cosen(separability=0)
WITH_ERRORS = _cosen(errors=1)

VARIANTS = {
    FREQUENCIES: "class frequencies only, nothing learned",
    LEARNED_TAU: "class frequencies with learned strength or offsets",
    LEARNED_MARGIN: "class frequencies and a learned margin",
    FIXED_MARGIN: "class frequencies with learned strength or offsets, and a margin of 4",
    LINEAR_OUTPUT: "class frequencies with learned strength or offsets, and a learned margin",
    WITHOUT_WEIGHTS: "`cosen` without the choice of class weights",
    WITHOUT_SEPARABILITY: "`cosen` without class separability",
    WITH_ERRORS: "all of `cosen` and pairwise errors",
}
"""Variants of ``cosen``, and what each of them has."""

DESCRIPTIONS = VARIANTS | {
    "cosen": "class frequencies with learned strength, and a learned margin; a cosine output layer "
    "if the network is trained from scratch. On pretrained features: offsets of the classes, a "
    "learned margin, class separability, and the choice between costs and class weights and "
    "between linear and cosine",
}

ORDER = ("baseline", *list(VARIANTS)[:-1], "cosen", WITH_ERRORS)
"""Order of the methods in a table."""

STEPS = (
    (FREQUENCIES, "baseline"),
    (LEARNED_TAU, FREQUENCIES),
    (LINEAR_OUTPUT, LEARNED_TAU),
    ("cosen", LINEAR_OUTPUT),
    ("cosen", WITHOUT_WEIGHTS),
    ("cosen", WITHOUT_SEPARABILITY),
    ("cosen", FREQUENCIES),
    (FIXED_MARGIN, LEARNED_TAU),
    (WITH_ERRORS, "cosen"),
)
"""Pairs of methods to compare: one part after another, all learned parts, then unused parts."""


def variants_for(network: str) -> tuple[str, ...]:
    """Return the variants that differ from ``cosen`` on a network.

    The output of a head is linear anyway. Only pretrained networks of timm have the choice of
    class weights and class separability.

    Example:
        >>> LINEAR_OUTPUT in variants_for("small-cnn"), LINEAR_OUTPUT in variants_for("head")
        (True, False)
    """
    same = {"head": {LINEAR_OUTPUT}}.get(network, set())
    if network in NETWORKS:
        same = same | {WITHOUT_WEIGHTS, WITHOUT_SEPARABILITY}
    return tuple(label for label in VARIANTS if label not in same)
