"""Learned costs in the Trainer of Hugging Face transformers."""

from pathlib import Path

import torch
from rare_digits import train, val
from transformers import (
    ResNetConfig,
    ResNetForImageClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint

from cosen import AdaptiveCosts

train, val = ([{"pixel_values": x, "labels": int(y)} for x, y in part] for part in (train, val))
args = TrainingArguments(
    "checkpoints",
    num_train_epochs=8,
    per_device_train_batch_size=16,
    learning_rate=2e-3,
    eval_strategy="epoch",
    save_strategy="epoch",
    metric_for_best_model="val_error",
    greater_is_better=False,
)
labels = torch.tensor([sample["labels"] for sample in train])
costs = AdaptiveCosts(torch.bincount(labels, minlength=10), reduction="sum").to(args.device)


def loss(outputs, labels, num_items_in_batch=None):
    samples = len(labels) if num_items_in_batch is None else num_items_in_batch
    return costs(outputs.logits, labels) / samples


def metrics(outputs):
    if not trainer.is_in_train:  # evaluate() and predict() must not change the costs
        return {}
    logits, target = map(torch.tensor, outputs)
    return {"val_error": costs.step(logits, target).val_error}


class SaveCosts(TrainerCallback):
    def on_save(self, args, state, control, **kwargs):
        torch.save(costs.state_dict(), f"{args.output_dir}/checkpoint-{state.global_step}/costs.pt")


sizes = {"embedding_size": 32, "hidden_sizes": [32, 64], "depths": [1, 1], "layer_type": "basic"}
model = ResNetForImageClassification(ResNetConfig(num_channels=1, num_labels=10, **sizes))
options = {"compute_loss_func": loss, "compute_metrics": metrics, "callbacks": [SaveCosts()]}
trainer = Trainer(model, args, train_dataset=train, eval_dataset=val, **options)
checkpoint = get_last_checkpoint("checkpoints") if Path("checkpoints").exists() else None
if checkpoint:
    costs.load_state_dict(torch.load(f"{checkpoint}/costs.pt"))
trainer.train(resume_from_checkpoint=checkpoint)
print(costs)
