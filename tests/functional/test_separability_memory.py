"""The promise of bounded memory, measured in a process of its own."""

import subprocess
import sys

import pytest

PROGRAM = """
import torch
from cosen.functional import class_separability
torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
features = torch.randn(20_000, 64, generator=generator)
target = torch.randint(100, (20_000,), generator=generator)
def peak():
    status = open("/proc/self/status").read()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
class_separability(features[:200], target[:200], num_classes=100)
before = peak()
class_separability(features, target, num_classes=100)
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_twenty_thousand_samples_take_less_than_a_gigabyte():
    """All distances at once would take 1.6 GB, however few the dimensions are."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert 0 < int(done.stdout) < 1e9
