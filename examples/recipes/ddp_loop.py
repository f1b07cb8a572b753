"""Learned costs with several processes: torchrun --nproc-per-node 2 ddp_loop.py"""

import gc

import torch
import torch.distributed as dist
from rare_digits import train, val
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from cosen import AdaptiveCosts

dist.init_process_group("gloo")  # "nccl" with GPUs
torch.manual_seed(0)
network = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
network = DistributedDataParallel(network)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
labels = torch.tensor([int(label) for _, label in train])  # of all processes
costs = AdaptiveCosts(torch.bincount(labels, minlength=10))
sampler = DistributedSampler(train)
val_part = range(dist.get_rank(), len(val), dist.get_world_size())

for epoch in range(5):
    sampler.set_epoch(epoch)
    network.train()
    for images, target in DataLoader(train, batch_size=16, sampler=sampler):
        loss = costs(network(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval()
    images, target = val[list(val_part)]
    with torch.no_grad():
        part = (network(images).cpu(), target)
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, part)  # every process gets the outputs of all
    logits, target = map(torch.cat, zip(*parts, strict=True))
    costs.step(logits, target)
print(f"process {dist.get_rank()}: {costs}")
dist.barrier()  # end together, and without the network: else a process sometimes aborts at its end
del network, optimizer, loss
gc.collect()
dist.destroy_process_group()
