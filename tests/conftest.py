"""What holds for every test: one thread a process, and a cache of the test's own."""

import os

# Some virtual machines advertise AMX but trap on it. oneDNN reads this once, on its first use.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import numpy as np
import pytest
import torch
from hypothesis import settings
from PIL import Image

# Ray reads these once, when it is imported, and would else write a token to the home folder.
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "for-a-test"}

# Two test processes run at once; torch on both cores in each would be slower.
torch.set_num_threads(1)
settings.register_profile("cosen", deadline=None, derandomize=True, max_examples=15)
settings.load_profile("cosen")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """No test sees what another, or the user, has cached."""
    monkeypatch.setenv("COSEN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def make_folder(tmp_path):
    """Makes a folder of class folders with small random images: ``make_folder(cat=3, dog=2)``."""

    def make(where="images", suffix=".png", **counts):
        generator = np.random.default_rng(0)
        for name, count in counts.items():
            for number in range(count):
                path = tmp_path / where / name / f"{number:03d}{suffix}"
                path.parent.mkdir(parents=True, exist_ok=True)
                pixels = generator.integers(0, 256, (12, 16, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(path)
        return tmp_path / where

    return make
