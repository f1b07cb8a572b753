"""For every test: one thread per process, its own cache, and no training without the mark."""

import os

# Some virtual machines advertise AMX but trap on it. oneDNN reads this once, on its first use.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from PIL import Image

# Ray reads these once, when it is imported, and would otherwise write a token to the home folder.
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "for-a-test"}

# Two test processes run at once; torch on both cores in each would be slower.
torch.set_num_threads(1)
settings.register_profile(
    "cosen",
    deadline=None,
    derandomize=True,
    max_examples=15,
    suppress_health_check=[HealthCheck.too_slow],  # other tests run at the same time
)
settings.load_profile("cosen")

SLOW = ("training", "processes", "browser", "ray")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """No test uses the cache of another test or of the user."""
    monkeypatch.setenv("COSEN_CACHE", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def trains_only_if_marked(request, monkeypatch):
    """``make check`` skips marked tests to stay fast."""
    if "src" in request.path.parts or any(map(request.node.get_closest_marker, SLOW)):
        return  # a doctest, or a test that may take long

    def refuse(_):
        pytest.fail("this test trains: mark it with pytest.mark.training")

    monkeypatch.setattr("cosen.training.loop.Loop.fit", refuse)


@pytest.fixture
def make_folder(tmp_path):
    """Make a folder of class folders with small random images: ``make_folder(cat=3, dog=2)``."""

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
