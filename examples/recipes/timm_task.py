"""Learned costs for timm's train.py. Keep this file next to it."""

import torch
import torch.distributed as dist
from timm.task import ClassificationTask
from torch.nn.functional import cross_entropy


class CostTask(ClassificationTask):
    """Classification with learned costs, which become part of timm's checkpoints."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.outputs = []

    def validation_loss(self, logits, target):
        self.outputs.append((logits.cpu(), target.cpu()))
        return cross_entropy(logits, target)

    def step_costs(self):
        outputs, self.outputs = self.outputs, []
        if dist.is_initialized():  # every process gets the outputs of all
            parts = [None] * dist.get_world_size()
            dist.all_gather_object(parts, outputs)
            outputs = [batch for part in parts for batch in part]
        logits, target = map(torch.cat, zip(*outputs, strict=True))
        return self.criterion.step(logits, target)

    def get_task_state(self, module=None, ema=False):
        return {} if ema else {"costs": self.criterion.state_dict()}

    def load_task_state(self, state, strict=True, module=None, ema=False):
        if state:
            self.criterion.load_state_dict(state["costs"])
