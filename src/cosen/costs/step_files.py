"""The tensors of a step of learned costs, as they are stored in a file."""

from collections.abc import Mapping
from dataclasses import fields

import torch
from torch import Tensor

from cosen.costs.adaptive import costs_of
from cosen.costs.learned import CostStep

NAMES = {"cost_matrix": "costs"}
"""Names in a file that differ from those of the fields."""

SPARSE = ".indices"
"""Ending of the name of a sparse tensor's indices."""


def step_tensors(step: CostStep) -> dict[str, Tensor]:
    """Return what a file of a step stores. Sparse tensors become indices and values.

    Row and diagonal are stored instead of the costs that follow from them.
    """
    found: dict[str, Tensor] = {}
    for field in fields(step):
        value = getattr(step, field.name)
        if not isinstance(value, Tensor):
            continue
        value = value.detach().cpu()
        if value.is_sparse:
            found[field.name + SPARSE] = value.indices().to(torch.int32).contiguous()
            found[field.name] = value.values().contiguous()
        else:
            found[NAMES.get(field.name, field.name)] = value.contiguous()
    return found


def step_matrices(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the matrices of a step from the tensors in its file, by name."""
    found = {name: tensor for name, tensor in tensors.items() if tensor.ndim == 2}
    for name in [name for name in found if name.endswith(SPARSE)]:
        of = name.removesuffix(SPARSE)
        indices, size = found.pop(name), len(tensors["row"])
        values = torch.sparse_coo_tensor(
            indices.long(), tensors[of], (size, size), check_invariants=True
        )
        found[of] = values.to_dense()
    if "row" in tensors:
        pairs = tensors.get("pair_term", tensors.get("error_term"))  # its name in version 0.2.0
        found["costs"] = costs_of(tensors["row"], tensors["diagonal"], pairs)
    return found
