import gzip
import hashlib
import io
import tarfile
import zipfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from cosen.data.fetch import DOWNLOADS, fetch
from cosen.data.named import NAMED, load_named
from cosen.errors import DataError
from data import named_layouts
from file_server import file_server


@pytest.fixture
def start_server():
    with ExitStack() as servers:
        yield lambda files=None: servers.enter_context(file_server(files))


@pytest.fixture
def server(start_server):
    return start_server()


def offer(monkeypatch, name, files, *, algorithm="md5"):
    """Makes these the files of a dataset, with correct checksums."""
    checksums = {
        file: f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"
        for file, content in files.items()
    }
    monkeypatch.setitem(DOWNLOADS, name, replace(DOWNLOADS[name], checksums=checksums))
    return files


def mnist_files():
    return {f"{name}.gz": gzip.compress(raw) for name, raw in named_layouts.idx_files().items()}


def tar_gz(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def folder_tar_gz(folder: Path) -> bytes:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return tar_gz({path.relative_to(folder.parent).as_posix(): path.read_bytes() for path in files})


def tree(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_files_arrive_whole_and_load(name, algorithm, server, monkeypatch, tmp_path):
    server.files.update(offer(monkeypatch, name, mnist_files(), algorithm=algorithm))
    told = []
    paths = fetch(name, tmp_path, urls=[server.url], progress=lambda *seen: told.append(seen))
    assert [path.read_bytes() for path in paths] == list(server.files.values())
    assert tree(tmp_path) == sorted([name, *(f"{name}/{file}" for file in server.files)])
    assert len(load_named(name, root=tmp_path)) == 10
    assert {(file, done) for file, done, total in told if done == total} == {
        (file, len(content)) for file, content in server.files.items()
    }


def test_files_keep_the_usual_permissions(server, monkeypatch, tmp_path):
    server.files.update(offer(monkeypatch, "mnist", mnist_files()))
    usual = tmp_path / "usual"
    usual.touch()
    (path, *_) = fetch("mnist", tmp_path, urls=[server.url])
    assert path.stat().st_mode == usual.stat().st_mode


def test_what_is_there_is_not_fetched_again(server, monkeypatch, tmp_path):
    server.files.update(offer(monkeypatch, "mnist", mnist_files()))
    fetch("mnist", tmp_path, urls=[server.url])
    broken, *_ = sorted(server.files)
    (tmp_path / "mnist" / broken).write_bytes(b"half a file")
    server.asked.clear()
    fetch("mnist", tmp_path, urls=[server.url])
    assert server.asked == [broken]
    assert (tmp_path / "mnist" / broken).read_bytes() == server.files[broken]


def test_a_server_that_breaks_off_leaves_nothing(server, monkeypatch, tmp_path):
    server.files.update(offer(monkeypatch, "mnist", mnist_files()))
    first, second, *_ = DOWNLOADS["mnist"].checksums
    server.cut.add(second)
    with pytest.raises(DataError, match=rf"{second}.*connection was lost.*Try again"):
        fetch("mnist", tmp_path, urls=[server.url])
    assert tree(tmp_path) == ["mnist", f"mnist/{first}"]
    server.cut.clear()
    fetch("mnist", tmp_path, urls=[server.url])
    assert server.asked.count(first) == 1


def test_wrong_bytes_leave_what_was_there(server, monkeypatch, tmp_path):
    files = offer(monkeypatch, "mnist", mnist_files())
    first, *_ = files
    server.files[first] = b"something else"
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / first).write_bytes(b"mine")
    with pytest.raises(
        DataError, match=rf"{first}.*the checksum is md5:\w+, but should be md5:\w+"
    ) as caught:
        fetch("mnist", tmp_path, urls=[server.url])
    assert str(tmp_path / "mnist" / first) in str(caught.value)
    assert tree(tmp_path) == ["mnist", f"mnist/{first}"]
    assert (tmp_path / "mnist" / first).read_bytes() == b"mine"


def test_the_next_mirror_is_tried(start_server, monkeypatch, tmp_path):
    files = offer(monkeypatch, "mnist", mnist_files())
    without, wrong, cut = start_server(), start_server(), start_server(files)
    wrong.files.update(dict.fromkeys(files, b"wrong"))
    cut.cut.update(files)
    right = start_server(files)
    mirrors = ["http://127.0.0.1:9/", without.url, wrong.url, cut.url, right.url.rstrip("/")]
    paths = fetch("mnist", tmp_path, urls=mirrors)
    assert [path.read_bytes() for path in paths] == list(files.values())
    assert all(server.asked == list(files) for server in (without, wrong, cut, right))


def test_every_mirror_that_failed_is_named(start_server, monkeypatch, tmp_path):
    offer(monkeypatch, "mnist", mnist_files())
    one, two = start_server(), start_server()
    with pytest.raises(DataError, match="404") as caught:
        fetch("mnist", tmp_path, urls=[one.url, two.url, "no address"])
    assert one.url in str(caught.value)
    assert two.url in str(caught.value)


def test_an_interrupt_leaves_nothing(server, monkeypatch, tmp_path):
    server.files.update(offer(monkeypatch, "mnist", mnist_files()))

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("mnist", tmp_path, urls=[server.url], progress=interrupt)
    assert tree(tmp_path) == ["mnist"]


@pytest.mark.parametrize(
    ("name", "make", "archive", "folder"),
    [
        ("cifar10", named_layouts.cifar10, "cifar-10-python.tar.gz", "cifar-10-batches-py"),
        ("cifar100", named_layouts.cifar100, "cifar-100-python.tar.gz", "cifar-100-python"),
    ],
)
def test_archives_are_unpacked_once(name, make, archive, folder, server, monkeypatch, tmp_path):
    make(tmp_path / "packed")
    packed = {archive: folder_tar_gz(tmp_path / "packed" / folder)}
    server.files.update(offer(monkeypatch, name, packed))
    root = tmp_path / "root"
    assert fetch(name, root, urls=[server.url]) == [root / folder]
    assert [path.name for path in root.iterdir()] == [folder]
    fetched, made = load_named(name, root=root), load_named(name, root=tmp_path / "packed")
    assert fetched.labels.tolist() == made.labels.tolist()
    fetch(name, root, urls=[server.url])
    assert server.asked == [archive]


def caltech_zip(root: Path) -> bytes:
    named_layouts.caltech101(root)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as outer:
        inner = folder_tar_gz(root / "101_ObjectCategories")
        outer.writestr("__MACOSX/caltech-101/._101_ObjectCategories.tar.gz", b"not a tar")
        outer.writestr("caltech-101/Annotations.tar", b"not wanted")
        outer.writestr("caltech-101/101_ObjectCategories.tar.gz", inner)
    return stream.getvalue()


def test_caltech_is_a_tar_in_a_zip(server, monkeypatch, tmp_path):
    files = {"caltech-101.zip": caltech_zip(tmp_path / "packed")}
    server.files.update(offer(monkeypatch, "caltech101", files))
    root = tmp_path / "root"
    assert fetch("caltech101", root, urls=[server.url]) == [root / "101_ObjectCategories"]
    assert [path.name for path in root.iterdir()] == ["101_ObjectCategories"]
    assert len(load_named("caltech101", root=root)) == 6


def test_a_folder_of_the_users_own_is_left_alone(server, monkeypatch, tmp_path):
    server.files.update(offer(monkeypatch, "cifar100", {"cifar-100-python.tar.gz": b"new"}))
    named_layouts.cifar100(tmp_path)
    before = tree(tmp_path)
    with pytest.raises(DataError, match=r"already exists.*move it away"):
        fetch("cifar100", tmp_path, urls=[server.url])
    assert tree(tmp_path) == before
    assert server.asked == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no archive at all", "cannot be unpacked"),
        (tar_gz({"cifar-100-python/train": b"x" * 9000})[:-60], "cannot be unpacked"),
        (tar_gz({"../outside": b"x"}), "cannot be unpacked"),
        (tar_gz({"cifar-100-python/../../outside": b"x"}), "cannot be unpacked"),
        (tar_gz({"another/train": b"x"}), "has no folder cifar-100-python"),
    ],
    ids=["none", "cut off", "outside", "outside by a detour", "another folder"],
)
def test_an_archive_that_is_none_leaves_nothing(content, reason, server, monkeypatch, tmp_path):
    server.files.update(offer(monkeypatch, "cifar100", {"cifar-100-python.tar.gz": content}))
    root = tmp_path / "root"
    with pytest.raises(DataError, match=reason):
        fetch("cifar100", root, urls=[server.url])
    assert tree(tmp_path) == ["root"]


@pytest.mark.parametrize("name", sorted(NAMED.keys() - DOWNLOADS.keys()))
def test_what_cannot_be_downloaded_says_where_it_is(name, tmp_path):
    with pytest.raises(DataError) as caught:
        fetch(name, tmp_path)
    assert NAMED[name].where in str(caught.value)
    assert tree(tmp_path) == []


def test_an_unknown_name_lists_the_choices(tmp_path):
    with pytest.raises(DataError, match="did you mean 'cifar10"):
        fetch("cifar", tmp_path)


def test_a_root_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="another data root"):
        fetch("mnist", tmp_path / "file")


@pytest.mark.parametrize("name", DOWNLOADS)
def test_every_download_has_mirrors_and_checksums(name):
    download = DOWNLOADS[name]
    assert name in NAMED
    assert all(url.startswith(("https://", "http://")) for url in download.mirrors)
    for checksum in download.checksums.values():
        algorithm, _, digits = checksum.partition(":")
        assert len(bytes.fromhex(digits)) == hashlib.new(algorithm).digest_size
