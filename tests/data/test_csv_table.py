import pytest

from cosen.data.csv_table import from_table
from cosen.errors import DataError


@pytest.fixture
def write(make_folder):
    root = make_folder(cat=3, dog=3)

    def write_table(*lines, encoding="utf-8"):
        table = root / "table.csv"
        table.write_bytes("\n".join(lines).encode(encoding))
        return table

    return write_table


def test_paths_and_labels(write):
    data = from_table(write("path,label", "cat/000.png,kitten", "dog/001.png,pup"))
    assert data.class_names == ("kitten", "pup")
    assert data.names == ["cat/000.png", "dog/001.png"]
    assert data.groups is None
    assert data.parts is None


def test_groups_and_splits(write):
    data = from_table(
        write(
            "path,label,group,split",
            "cat/000.png,a,p1,train",
            "cat/001.png,b,p2,test",
            "cat/002.png,a,p3,",
            "dog/000.png,b,p3,Validation",
        )
    )
    assert data.groups.tolist() == ["p1", "p2", "p3", "p3"]
    assert data.parts.tolist() == ["train", "test", "train", "val"]


def test_a_byte_order_mark_and_other_columns(write):
    table = write("image,diagnosis,age", "cat/000.png,x,3", "dog/000.png,y,4", encoding="utf-8-sig")
    data = from_table(table, path_column="image", label_column="diagnosis")
    assert data.class_names == ("x", "y")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((), "lists no images"),
        (("path,label",), "lists no images"),
        (("file,label", "cat/000.png,a"), "no column 'path', but file, label"),
        (("path,label", "cat/000.png,a", "cat/001.png,a"), "has 1 class"),
        (("path,label", "cat/nine.png,a", "dog/ten.png,b"), r"files that are not there \(2\)"),
        (("path,label", "cat/000.png"), "line 2: not as many cells"),
        (
            ("path,label,split", "cat/000.png,a,weekday", "dog/000.png,b,test"),
            "line 2: split is 'weekday'",
        ),
    ],
)
def test_what_is_wrong_is_named(write, lines, message):
    table = write(*lines)
    with pytest.raises(DataError, match=message):
        from_table(table)


def test_not_utf8_and_not_there(write, tmp_path):
    with pytest.raises(DataError, match="not UTF-8"):
        from_table(write("path,label", "cat/000.png,ä", encoding="latin-1"))
    with pytest.raises(DataError, match="is not there"):
        from_table(tmp_path / "none.csv")
