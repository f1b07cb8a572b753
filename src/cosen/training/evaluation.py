"""Evaluate a network on a split, with all processes, and compute metrics of its outputs."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from cosen import functional as F
from cosen.costs import Objective
from cosen.data.batches import Share
from cosen.data.labelled import LabelledImages
from cosen.networks.network import Outputs
from cosen.training.calibration import Calibration
from cosen.training.loop import rare_classes
from cosen.training.records import Metrics, SparseConfusion
from cosen.training.task import Task

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@torch.no_grad()
def run_network(
    fabric: "Fabric", network: nn.Module, task: Task, part: LabelledImages, *, batch_size: int
) -> Outputs:
    """Return the outputs for a split; each process computes its share."""
    network.eval()
    share = Share(fabric.global_rank, fabric.world_size)
    own = part.take(np.arange(share.rank, len(part), share.world))
    has_share = len(own) > 0
    if not has_share:  # fewer samples than processes: use one, and remove it below
        own = part.take(np.arange(1))
    collected: list[tuple[Tensor, Tensor, Tensor]] = []
    with fabric.autocast():
        for batch in task.batches(own, batch_size=batch_size, device=fabric.device):
            output = network(batch.inputs)
            collected.append((output.logits.float(), output.features.float(), batch.target))
    parts = [torch.cat(tensors)[: len(own) * has_share] for tensors in zip(*collected, strict=True)]
    return Outputs(*(_gather(fabric, tensor, len(part)).cpu() for tensor in parts))


def _gather(fabric: "Fabric", own: Tensor, total: int) -> Tensor:
    """Return the samples of all processes in their original order."""
    if fabric.world_size == 1:
        return own
    most = -(-total // fabric.world_size)
    padded = torch.cat([own, own.new_zeros(most - len(own), *own.shape[1:])])
    gathered = fabric.all_gather(padded)  # (processes, most, ...)
    assert isinstance(gathered, Tensor)
    return gathered.transpose(0, 1).flatten(0, 1)[:total]


def summarise(outputs: Outputs, *, objective: Objective, calibration: Calibration) -> Metrics:
    """Compute the metrics of outputs."""
    confusion = outputs.confusion()
    recall = F.class_recall(confusion)
    shares = outputs.target.bincount(minlength=len(recall)).double()
    calibrated = calibration.probabilities(outputs.logits, shares).float()
    error_after = F.expected_calibration_error(calibrated, outputs.target)
    del calibrated  # with many classes it is large
    probabilities = outputs.logits.softmax(1)
    precision = F.one_vs_rest_average_precision(probabilities, outputs.target)
    numbers: dict[str, Tensor | float] = {
        "error": objective.error(confusion),
        "accuracy": F.overall_accuracy(confusion),
        "mean_recall": F.mean_recall(confusion),
        "rare_recall": recall[rare_classes(calibration.class_counts)].nanmean(),
        "g_mean": F.g_mean(confusion),
        "macro_f1": F.macro_f1(confusion),
        "paper_g_mean": F.paper_g_mean(confusion),
        "paper_f_measure": F.paper_f_measure(confusion),
        "auc": F.one_vs_rest_auc(probabilities, outputs.target).nanmean(),
        "average_precision": precision.nanmean(),
        "calibration_error": F.expected_calibration_error(probabilities, outputs.target),
        "calibration_error_after": error_after,
    }
    return Metrics(
        samples=len(outputs.target),
        class_recall=tuple(_number(value) for value in recall.tolist()),
        class_precision=tuple(F.class_precision(confusion).tolist()),
        confusion=SparseConfusion.of(confusion)
        if confusion.is_sparse
        else tuple(map(tuple, confusion.tolist())),
        **{name: _number(float(value)) for name, value in numbers.items()},
    )


def _number(value: float) -> float | None:
    return None if value != value else value  # NaN: not defined
