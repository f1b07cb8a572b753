"""CSVs of images and of costs, and TOML files: read, or refused with one sentence."""

import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from cosen.costs.cost_table import read_cost_table, read_misclassification_costs
from cosen.data.sources import from_table
from cosen.training.config import TrainConfig, make_config, read_config
from robustness.damage import JSON_VALUES, damaged, fuzz, survives

TABLE = (
    b"path,label,group,split\ncat/000.png,cat,a,train\ncat/001.png,cat,b,test\ndog/000.png,dog,a,\n"
)
COSTS = b"true,cat,dog,eel\ncat,0,1,2.5\ndog,1,0,1e3\neel,4,0.5,0\n"
TOML = tomli_w.dumps(
    {"epochs": 3, "lr": 0.1, "method": "cosen", "options": {"margin": 4.0}, "augment": ["flip"]}
).encode()


def test_damaged_tables_of_images(make_folder):
    root = make_folder(cat=2, dog=1)
    outcomes = set()

    @fuzz(400)
    @given(damaged(TABLE) | st.binary(max_size=80))
    def check(content):
        (root / "table.csv").write_bytes(content)
        outcomes.add(survives(lambda: from_table(root / "table.csv")))

    (root / "table.csv").write_bytes(TABLE)
    assert len(from_table(root / "table.csv")) == 3
    check()
    assert False in outcomes


def test_damaged_tables_of_costs(tmp_path):
    path, names = tmp_path / "costs.csv", ("cat", "dog", "eel")
    outcomes = set()

    @fuzz(400)
    @given(damaged(COSTS) | st.binary(max_size=80))
    def check(content):
        path.write_bytes(content)
        survives(lambda: read_cost_table(path, names))
        outcomes.add(survives(lambda: read_misclassification_costs(path, names)))

    check()
    assert outcomes == {True, False}


def test_damaged_settings(tmp_path):
    path, outcomes = tmp_path / "settings.toml", set()

    @fuzz(400)
    @given(damaged(TOML) | st.binary(max_size=80))
    def check(content):
        path.write_bytes(content)
        outcomes.add(survives(lambda: make_config(read_config(path))))

    check()
    assert False in outcomes


@fuzz(400)
@given(st.sampled_from(sorted(vars(TrainConfig()))), JSON_VALUES)
def test_settings_of_any_type(name, value):
    survives(lambda: make_config({name: value}))
