"""Learned costs in a plain PyTorch loop, with checkpoints."""

from pathlib import Path

import torch
from rare_digits import train, val
from torch import nn
from torch.utils.data import DataLoader

from cosen import AdaptiveCosts

device = "cuda" if torch.cuda.is_available() else "cpu"
network = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
labels = torch.tensor([int(label) for _, label in train])
costs = AdaptiveCosts(torch.bincount(labels, minlength=10)).to(device)
parts = {"network": network, "optimizer": optimizer, "costs": costs}
checkpoint, start = Path("checkpoint.pt"), 0

if checkpoint.exists():
    state = torch.load(checkpoint, map_location=device)
    start = state.pop("epochs")
    for name, part in parts.items():
        part.load_state_dict(state[name])

for epoch in range(start, 10):
    network.train()
    for images, target in DataLoader(train, batch_size=32, shuffle=True):
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = costs(network(images.to(device)), target.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval()
    with torch.no_grad():
        outputs = [(network(images.to(device)), target) for images, target in DataLoader(val, 64)]
    logits, target = map(torch.cat, zip(*outputs, strict=True))
    step = costs.step(logits, target)
    print(f"epoch {epoch + 1}: validation error {step.val_error:.3f}")
    state = {name: part.state_dict() for name, part in parts.items()}
    torch.save(state | {"epochs": epoch + 1}, checkpoint)
print(costs)
