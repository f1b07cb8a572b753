from io import BytesIO
from zipfile import ZipFile

import pytest

from cosen.comparing.shipping import pack, unpack
from cosen.errors import DataError, RunError


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    (folder / "costs").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / ".lock").touch()
    (folder / "model.bin").write_bytes(bytes(range(256)))
    (folder / "costs" / "ξ 1.txt").write_text("cost")
    return folder


def test_a_folder_arrives_as_it_left(run, tmp_path):
    there = tmp_path / "not yet" / "there"
    unpack(pack(run), there)
    assert contents(there) == contents(run)
    assert (there.stat().st_mode & 0o777) == (run.stat().st_mode & 0o777)


def test_what_was_there_before_is_replaced(run, tmp_path):
    there = tmp_path / "there"
    (there / "costs").mkdir(parents=True)
    (there / "costs" / "old.txt").touch()
    unpack(pack(run), there)
    assert contents(there) == contents(run)
    assert {path.name for path in tmp_path.iterdir()} == {"run", "there"}, "nothing left about"


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "costs/../../escaped"])
def test_an_entry_that_leads_out_of_the_folder_is_refused(name, tmp_path):
    buffer = BytesIO()
    with ZipFile(buffer, "w") as archive:
        archive.writestr("harmless", "")
        archive.writestr(name, "")
    there = tmp_path / "there"
    with pytest.raises(DataError, match="would write outside it"):
        unpack(buffer.getvalue(), there)
    assert not there.exists()


def test_damage_leaves_what_was_there(run):
    before = contents(run)
    data = bytearray(pack(run))
    data[data.index(bytes(range(256)))] ^= 1
    with pytest.raises(DataError, match="damaged"):
        unpack(bytes(data), run)
    with pytest.raises(DataError, match="damaged"):
        unpack(b"", run)
    assert contents(run) == before


def test_a_folder_that_cannot_move_in_leaves_what_was_there(run, monkeypatch):
    before = contents(run)
    data = pack(run)
    rename = type(run).rename

    def rename_but_new(path, target):
        if path.name == "new":
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(type(run), "rename", rename_but_new)
    with pytest.raises(RunError, match=r"cannot write .*run: No space left"):
        unpack(data, run)
    assert contents(run) == before


def test_a_folder_that_is_not_there_cannot_be_sent(tmp_path):
    with pytest.raises(DataError, match="there is no folder"):
        pack(tmp_path / "nowhere")
