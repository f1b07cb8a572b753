"""Running a network over data, over all processes, and what the outcome says."""

from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from cosen import functional as F
from cosen.costs import Objective, validation_error
from cosen.data.batches import Share
from cosen.data.labelled import LabelledImages
from cosen.networks.output import Outputs
from cosen.training.task import Task


@torch.no_grad()
def run_network(
    fabric: Fabric, network: nn.Module, task: Task, part: LabelledImages, *, batch_size: int
) -> Outputs:
    """The outputs for every sample of a part, each process working on its share."""
    network.eval()
    share = Share(fabric.global_rank, fabric.world_size)
    own = part.take(np.arange(share.rank, len(part), share.world))
    has_share = len(own) > 0
    if not has_share:  # fewer samples than processes: one stands in, and is cut off below
        own = part.take(np.arange(1))
    collected: list[tuple[Tensor, Tensor, Tensor]] = []
    with fabric.autocast():
        for batch in task.batches(own, batch_size=batch_size, device=fabric.device):
            output = network(batch.inputs)
            collected.append((output.logits.float(), output.features.float(), batch.target))
    parts = [torch.cat(tensors)[: len(own) * has_share] for tensors in zip(*collected, strict=True)]
    return Outputs(*(_gather(fabric, tensor, len(part)).cpu() for tensor in parts))


def _gather(fabric: Fabric, own: Tensor, total: int) -> Tensor:
    """The samples of all processes, in the order that they were dealt out in."""
    if fabric.world_size == 1:
        return own
    most = -(-total // fabric.world_size)
    padded = torch.cat([own, own.new_zeros(most - len(own), *own.shape[1:])])
    gathered = all_processes(padded, fabric)  # (processes, most, ...)
    return gathered.transpose(0, 1).flatten(0, 1)[:total]


def all_processes(own: Tensor, fabric: Fabric) -> Tensor:
    """The tensors of all processes, stacked in their order."""
    tensors = [torch.empty_like(own) for _ in range(fabric.world_size)]
    torch.distributed.all_gather(tensors, own.contiguous())
    return torch.stack(tensors)


def rare_classes(class_counts: np.ndarray | tuple[int, ...]) -> list[int]:
    """The rarest third of the classes, at least one."""
    order = np.argsort(np.asarray(class_counts), kind="stable")
    return [int(label) for label in order[: max(1, len(order) // 3)]]


def summarise(
    outputs: Outputs, *, class_counts: tuple[int, ...], objective: Objective, temperature: float
) -> dict[str, Any]:
    """The metrics of a part of the data as plain numbers."""
    confusion = outputs.confusion()
    recall = F.class_recall(confusion)
    probabilities = outputs.logits.softmax(1)
    calibrated = (outputs.logits / temperature).softmax(1)
    auc = F.one_vs_rest_auc(outputs.logits.softmax(1), outputs.target)
    precision = F.one_vs_rest_average_precision(probabilities, outputs.target)
    numbers = {
        "samples": len(outputs.target),
        "error": validation_error(confusion, objective),
        "accuracy": float(F.overall_accuracy(confusion)),
        "mean_recall": float(F.mean_recall(confusion)),
        "rare_recall": float(recall[rare_classes(class_counts)].nanmean()),
        "g_mean": float(F.g_mean(confusion)),
        "macro_f1": float(F.macro_f1(confusion)),
        "paper_g_mean": float(F.paper_g_mean(confusion)),
        "paper_f_measure": float(F.paper_f_measure(confusion)),
        "auc": float(auc.nanmean()),
        "average_precision": float(precision.nanmean()),
        "calibration_error": float(F.expected_calibration_error(probabilities, outputs.target)),
        "calibration_error_after": float(F.expected_calibration_error(calibrated, outputs.target)),
    }
    return {
        **{name: None if value != value else value for name, value in numbers.items()},
        "class_recall": [None if r != r else r for r in recall.tolist()],
        "class_precision": F.class_precision(confusion).tolist(),
        "confusion": confusion.tolist(),
    }
