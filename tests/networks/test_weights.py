"""Pre-trained weights for the paper's network: which layers use them, and the download."""

import hashlib

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from cosen.errors import DataError
from cosen.networks import build_network, weights
from cosen.networks.vgg import PaperNetwork, VGG16Features
from cosen.networks.weights import WEIGHTS, fetch_weights, load_weights, weights_root
from file_server import file_server

CONVOLUTIONS = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)


def entries(*layers):
    return [f"{layer}.{part}" for layer in layers for part in ("weight", "bias")]


FEATURES = entries(*(f"features.{number}" for number in CONVOLUTIONS))


@pytest.fixture(scope="module")
def vgg16_file(tmp_path_factory):
    """A state dict like torchvision's; each tensor repeats one number, to be small."""
    with torch.device("meta"):
        whole = nn.Module()
        whole.features = VGG16Features().features
        whole.classifier = nn.Sequential(
            *(nn.Linear(25088, 4096), nn.ReLU(), nn.Dropout()),
            *(nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout()),
            nn.Linear(4096, 1000),
        )
    state = {
        name: torch.tensor(0.5).expand(tensor.shape) for name, tensor in whole.state_dict().items()
    }
    path = tmp_path_factory.mktemp("weights") / "vgg16-00000000.pth"
    torch.save(state, path)
    assert path.stat().st_size < 100_000
    return path


def whole_network(reading):
    """The network in full width, in half precision and with uninitialised weights."""
    with torch.device("meta"):
        network = PaperNetwork(5, reading=reading)
    return network.to(torch.bfloat16).to_empty(device="cpu")


@pytest.mark.parametrize(
    ("reading", "taken", "random", "unused"),
    [
        ("whole-vgg", (0, 3, 6), entries("extra.1", "output"), []),
        ("two-extra", (0, 3), entries("extra.0", "extra.3", "output"), entries("classifier.6")),
    ],
)
def test_torchvisions_vgg16_fills_all_but_the_new_layers(
    reading, taken, random, unused, vgg16_file
):
    network = whole_network(reading)
    loaded = load_weights(network, vgg16_file)
    fully_connected = entries(*(f"classifier.{number}" for number in taken))
    assert list(loaded.loaded) == FEATURES + fully_connected
    assert len(loaded.loaded) == 2 * (13 + len(taken))  # 16 pre-trained layers, or 15
    assert list(loaded.random) == random
    assert list(loaded.unused) == unused
    for name in ("features.28.weight", "classifier.0.bias", "classifier.3.weight"):
        assert (network.state_dict()[name] == 0.5).all()


def test_a_file_of_convolutions_leaves_the_rest_random(tmp_path):
    torch.manual_seed(0)
    network = PaperNetwork(5, width=8)
    fc6 = network.classifier[0].weight.detach().clone()
    with torch.device("meta"):
        shapes = VGG16Features().state_dict()
    half = {name: torch.full(t.shape, 0.25, dtype=torch.float16) for name, t in shapes.items()}
    save_file(half, tmp_path / "features.safetensors")
    loaded = load_weights(network, tmp_path / "features.safetensors")
    assert sorted(loaded.loaded) == sorted(FEATURES)
    new = ("classifier.0", "classifier.3", "classifier.6", "extra.1", "output")
    assert list(loaded.random) == entries(*new)
    assert network.features[0].weight.dtype == torch.float32
    assert (network.features[28].weight == 0.25).all()
    assert torch.equal(network.classifier[0].weight, fc6)


def test_a_layer_is_taken_whole_or_not_at_all(vgg16_file):
    """The 1000 biases of the last layer would fit a narrower network; its weights do not."""
    loaded = load_weights(PaperNetwork(5, width=8), vgg16_file)
    assert list(loaded.loaded) == FEATURES
    assert list(loaded.unused) == entries("classifier.0", "classifier.3", "classifier.6")


@pytest.fixture
def server():
    with file_server() as server:
        yield server


CONTENT = b"some weights" * 50_000


@pytest.fixture
def offered(server, monkeypatch):
    """Makes :data:`CONTENT` the file of vgg16, with the correct checksum."""
    file = f"vgg16-{hashlib.sha256(CONTENT).hexdigest()[:8]}.pth"
    monkeypatch.setitem(WEIGHTS, "vgg16", file)
    server.files[file] = CONTENT
    return file


def test_weights_arrive_whole_and_once(server, offered, tmp_path):
    told = []
    path = fetch_weights("vgg16", tmp_path, [server.url], progress=lambda *seen: told.append(seen))
    assert path == tmp_path / offered
    assert path.read_bytes() == CONTENT
    assert told[-1] == (offered, len(CONTENT), len(CONTENT))
    assert fetch_weights("vgg16", tmp_path, [server.url]) == path
    assert server.asked == [offered]
    assert list(tmp_path.iterdir()) == [path]


def test_the_official_address_and_the_usual_place(server, offered, monkeypatch, tmp_path):
    monkeypatch.setenv("COSEN_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(weights, "TORCHVISION", server.url)
    assert fetch_weights() == tmp_path / "kept" / "weights" / offered
    monkeypatch.delenv("COSEN_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert weights_root() == tmp_path / ".cache" / "cosen" / "weights"


@pytest.mark.parametrize(
    ("fail", "reason"),
    [
        (lambda server, file: server.cut.add(file), "connection was lost"),
        (
            lambda server, file: server.files.update({file: b"else"}),
            "checksum is sha256:.* should be sha256:",
        ),
        (lambda server, _: server.files.clear(), "answered 404"),
    ],
)
def test_a_download_that_fails_leaves_what_was_there(fail, reason, server, offered, tmp_path):
    (tmp_path / offered).write_bytes(b"half a file")
    fail(server, offered)
    with pytest.raises(DataError, match=reason) as caught:
        fetch_weights("vgg16", tmp_path, [server.url])
    assert str(tmp_path / offered) in str(caught.value)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"half a file"]


def test_a_broken_file_is_fetched_again_from_the_next_address(server, offered, tmp_path):
    (tmp_path / offered).write_bytes(b"half a file")
    path = fetch_weights("vgg16", tmp_path, ["http://127.0.0.1:9/", "no address", server.url])
    assert path.read_bytes() == CONTENT


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="choose another folder"):
        fetch_weights("vgg16", tmp_path / "file")


def test_unknown_weights_list_the_choices(tmp_path):
    with pytest.raises(DataError, match="did you mean 'vgg16'"):
        fetch_weights("vgg", tmp_path)


def test_an_interrupt_leaves_nothing(server, offered, tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_weights("vgg16", tmp_path, [server.url], progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_linear_layer_does_not_become_one_of_cosines(tmp_path):
    linear = build_network("small-cnn", num_classes=3, channels=1)
    torch.save(linear.state_dict(), tmp_path / "linear.pth")
    cosine = build_network("small-cnn", num_classes=3, channels=1, output="cosine")
    before = cosine.output.weight.clone()
    loaded = load_weights(cosine, tmp_path / "linear.pth")
    assert loaded.random == ("output.weight",)
    assert loaded.unused == ("output.weight", "output.bias")
    assert torch.equal(cosine.output.weight, before)
    assert torch.equal(cosine.features[0].weight, linear.features[0].weight)
