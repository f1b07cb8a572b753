"""Class activation maps: where a network looked for its decision (Grad-CAM, Selvaraju et al. 2017).

The map of a class n weights the last feature maps A by the mean gradient of its logit,

    M = max(0, Σ_k α_k A_k)  with  α_k = mean over places of ∂o_n / ∂A_k.

With global average pooling and a linear output layer this is the class activation map of Zhou et
al. (2016). The gradient is that of the layers after the maps only, so a map costs little more than
a prediction.
"""

import base64
import io
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

LEAST_SIDE, LARGEST_SIDE = 4, 16
"""Maps with fewer places in a row say too little; larger ones are shrunk in pictures."""

COLOUR, OPACITY = (255, 0, 200), 170  # a colour that photographs rarely have


def find_map_layer(classifier: nn.Module, inputs: Tensor) -> nn.Module | None:
    """Return the last layer whose output has places; None if there is none that is large enough.

    It is the last one with an output of shape ``(B, K, h, w)`` or ``(B, h, w, K)``, or the first
    norm of the last block of a vision transformer: after this block only its class token counts.
    """
    for transformer in classifier.modules():
        if hasattr(transformer, "patch_embed") and hasattr(transformer, "num_prefix_tokens"):
            blocks = dict(transformer.named_children()).get("blocks", nn.Identity())
            layer = getattr([None, *blocks.children()][-1], "norm1", None)
            return layer if isinstance(layer, nn.Module) else None
    found: list[nn.Module] = []

    def record(layer: nn.Module, _: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.ndim == 4 and _places(output, inputs) is not None:
            found.append(layer)

    hooks = [
        layer.register_forward_hook(record)
        for layer in classifier.modules()
        if not isinstance(layer, nn.Identity | nn.Dropout | nn.Softmax)  # attention has no places
    ]
    try:
        with torch.no_grad():
            classifier(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return found[-1] if found else None


def logits_and_maps(
    classifier: nn.Module, layer: nn.Module, inputs: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the logits ``(B, C)`` and the maps of the most probable classes, ``(B, h, w)``.

    The largest value of each map is 1, or 0 if no place supports the class.
    """
    seen: list[Tensor] = []

    def cut(_: nn.Module, __: Any, output: Tensor) -> Tensor:
        seen[:] = [output.detach().clone().requires_grad_()]  # the last call, if it has several
        return seen[0].clone()  # gradients end here; the next layer may work in place

    required = [parameter for parameter in classifier.parameters() if parameter.requires_grad]
    for parameter in required:
        parameter.requires_grad_(False)
    try:
        with layer.register_forward_hook(cut), torch.enable_grad():
            logits: Tensor = classifier(inputs)
            best = logits.amax(1).sum()
            gradient: Tensor | None = None
            if best.requires_grad:  # a custom network may stop gradients
                (gradient,) = torch.autograd.grad(best, seen[0], allow_unused=True)
    finally:
        for parameter in required:
            parameter.requires_grad_(True)
    slope = torch.zeros_like(seen[0]) if gradient is None else gradient
    maps, slopes = (_as_grid(values.detach().float(), inputs) for values in (seen[0], slope))
    weights = slopes.mean((2, 3), keepdim=True)
    found = (weights * maps).sum(1).clamp(min=0)  # (B, h, w)
    return logits.detach(), found / found.amax((1, 2), keepdim=True).clamp(min=1e-12)


def _places(output: Tensor, inputs: Tensor) -> tuple[int, int] | None:
    """Return the two dimensions of an output that are places; None if there are none."""
    height, width = inputs.shape[2:]
    for rows, columns in ((2, 3), (1, 2)):
        sides = output.shape[rows], output.shape[columns]
        is_alike = abs(sides[0] * width - sides[1] * height) <= max(height, width)  # rounding
        if is_alike and min(sides) >= LEAST_SIDE and sides[0] <= height and sides[1] <= width:
            return rows, columns
    return None


def _as_grid(values: Tensor, inputs: Tensor) -> Tensor:
    """Return maps as ``(B, K, h, w)``; the last h * w tokens of a transformer are its places."""
    if values.ndim == 4:
        return values if _places(values, inputs) == (2, 3) else values.movedim(3, 1)
    tokens, ratio = values.shape[1], inputs.shape[2] / inputs.shape[3]
    sides = int((tokens * ratio) ** 0.5), int((tokens / ratio) ** 0.5)
    places = values[:, tokens - sides[0] * sides[1] :]
    return places.transpose(1, 2).reshape(len(values), -1, *sides)


def map_picture(found: Tensor) -> str:
    """Return a map ``(h, w)`` as a data URL of a PNG: one colour, more opaque where it is higher.

    Example:
        >>> map_picture(torch.eye(4))[:22]
        'data:image/png;base64,'
    """
    sides = min(found.shape[0], LARGEST_SIDE), min(found.shape[1], LARGEST_SIDE)
    found = nn.functional.adaptive_avg_pool2d(found[None], sides)[0]
    pixels = np.empty((*sides, 4), dtype=np.uint8)
    pixels[..., :3] = COLOUR
    pixels[..., 3] = (OPACITY * found).round().byte().cpu().numpy()
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
