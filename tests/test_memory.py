import subprocess
import sys

import pytest

PAGES = """
import resource
import sys

from cosen.memory import reuse_memory

if sys.argv[1] == "reuse":
    reuse_memory()
import torch

for turn in range(40):
    if turn == 20:  # the heap has grown to its size
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    activations = [torch.ones(2**24) for _ in range(2)]  # 64 MB each
    del activations
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def new_pages(mode):
    done = subprocess.run(
        [sys.executable, "-c", PAGES, mode], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is for Linux")
def test_large_tensors_reuse_freed_memory():
    assert new_pages("reuse") < new_pages("default") / 10
