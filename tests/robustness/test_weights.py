"""Weights files: tensors or an error, and never code."""

import io
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from cosen.errors import DataError
from cosen.networks.weights import read_weights
from robustness.damage import damaged, fuzz, survives

STATE = {"output.weight": torch.arange(6.0).reshape(2, 3), "output.bias": torch.zeros(2)}


def saved(value, **options) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


FILES = {
    "a.safetensors": save(STATE),
    "a.pth": saved(STATE),
    "old.pth": saved(STATE, _use_new_zipfile_serialization=False),
}


@pytest.mark.parametrize("name", FILES)
def test_damaged_weights(tmp_path, name):
    path, outcomes = tmp_path / name, set()

    @fuzz(150)
    @given(damaged(FILES[name]) | st.binary(max_size=100))
    def check(content):
        path.write_bytes(content)
        outcomes.add(survives(lambda: read_weights(path)))

    path.write_bytes(FILES[name])
    assert read_weights(path).keys() == STATE.keys()
    check()
    assert False in outcomes


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize(
    "wrap", [lambda bomb: bomb, lambda bomb: {"weight": bomb}, lambda bomb: [bomb]]
)
def test_code_in_a_weights_file_does_not_run(tmp_path, wrap):
    bomb = wrap(Bomb(tmp_path / "ran"))
    for number, content in enumerate((saved(bomb), pickle.dumps(bomb))):
        path = tmp_path / f"{number}.pth"
        path.write_bytes(content)
        with pytest.raises(DataError):
            read_weights(path)
    assert not (tmp_path / "ran").exists()
