import io

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from cosen.serving.app import make_app
from cosen.training.config import TrainConfig
from cosen.training.run import train_run

LOCAL = "http://127.0.0.1:8000"


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


@pytest.fixture(scope="module")
def client(served_runs):
    with TestClient(make_app(served_runs[0]), base_url=LOCAL) as client:
        yield client


def encoded(seed=0, size=(20, 16), kind="PNG"):
    """A random image."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0]), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def files(*contents):
    """Images as fields of a form."""
    return [("images", (f"{number}.png", one)) for number, one in enumerate(contents)]


BODY = (
    b'--b\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\n'
    b"Content-Type: image/png\r\n\r\n" + encoded() + b"\r\n--b\r\nContent-Disposition: form-data; "
    b'name="prior"\r\n\r\ntrain\r\n--b--\r\n'
)
"""A request as it is sent, with an image and class shares."""
