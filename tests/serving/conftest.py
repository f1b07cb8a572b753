import io

import numpy as np
import pytest
from PIL import Image

from cosen.training.config import TrainConfig
from cosen.training.run import train_run


@pytest.fixture(scope="session")
def served_runs(tmp_path_factory):
    """Two runs on digits with different seeds. Do not change their files."""
    folder = tmp_path_factory.mktemp("served")
    runs = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSEN_CACHE", str(folder / "cache"))
        for seed in (0, 1):
            config = TrainConfig(
                data="digits", imbalance="odd:0.1", epochs=1, device="cpu", seed=seed
            )
            runs.append(train_run(config, folder / str(seed)).path)
    return runs


def encoded(seed=0, size=(20, 16), kind="PNG"):
    """A random image."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0]), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()
