import errno

import pytest

from cosen.errors import RunError
from cosen.files import make_folder, write_text, write_with


def test_a_text_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "before")

    def stop(partial):
        partial.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_with(path, stop)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "free some space"),
        (OSError(errno.EROFS, "Read-only file system"), "use another folder"),
        (
            OSError(errno.ENOENT, "No such file or directory"),
            "create the folder .*, or use another",
        ),
        (RuntimeError("[enforce fail at inline.cc:672] . pos"), "it could not be finished.*free"),
    ],
)
def test_what_cannot_be_written_is_one_sentence(tmp_path, monkeypatch, error, advice):
    def fail(*_, **__):
        raise error

    def read_only(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.write_text", fail)
        patch.setattr("pathlib.Path.unlink", read_only)
        with pytest.raises(RunError, match=rf"cannot write .*a\.txt \(.*{advice}"):
            write_text(tmp_path / "a.txt", "text")


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot create the folder .*file/below: Not a directory"):
        make_folder(tmp_path / "file" / "below")
