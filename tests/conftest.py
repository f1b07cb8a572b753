"""For every test: one thread per process, its own cache, and no training without the mark."""

import gc
import os
import shutil
from collections.abc import Iterator

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

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

SLOW = ("training", "processes", "browser", "ray")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Start slow tests first, so that no worker waits long for the last one; keep groups together.

    With pytest 9.2, pytest-xdist 3.8 ignores groups (its issue 1386): it appends the name to an
    attribute that pytest no longer reads.
    """
    items.sort(key=lambda item: not any(map(item.get_closest_marker, SLOW)))
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        group = item.get_closest_marker("xdist_group")
        if group is not None and "@" not in item.nodeid:
            item._id = type(item.id).parse(f"{item.nodeid}@{group.args[0]}")


def pytest_collection_finish():
    """Exclude modules and tests from garbage collection: that takes half a second each time."""
    gc.collect()
    gc.freeze()


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


@pytest.fixture(scope="session")
def chromium() -> Iterator:
    """A headless Chromium; without one, tests are skipped."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: install cosen[dev]"
    )
    executable = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if executable is None:
        pytest.skip(f"no Chromium on the path (looked for {', '.join(BROWSERS)})")
    with playwright.sync_playwright() as driver:
        # Containers have neither user namespaces for the sandbox nor a large /dev/shm.
        chromium = driver.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield chromium
        chromium.close()
