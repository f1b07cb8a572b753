"""What is published: the wheel, and the files that must agree with the package."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

import cosen

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text())
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}


def requirements():
    """The dependencies with a lower bound: name and bound. Only developers install ``docs``."""
    lines = list(PROJECT["dependencies"])
    for name, extra in PROJECT["optional-dependencies"].items():
        lines += extra if name != "docs" else []
    return dict(line.split(">=") for line in lines if ">=" in line)


def pins(path):
    """The pinned versions in a file of constraints."""
    found = re.findall(r"^([^#=\s]+)==(\S+)$", path.read_text(), re.M)
    return {name.lower().replace("_", "-"): version for name, version in found}


def without_zeros(version):
    return re.sub(r"(\.0)*$", "", version)


def python_versions():
    prefix = "Programming Language :: Python :: "
    return [text.removeprefix(prefix) for text in PROJECT["classifiers"] if prefix in text]


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["version"]) == cosen.__version__
    newest = re.findall(r"^## (\S+)(?: - (\S+))?$", (ROOT / "CHANGELOG.md").read_text(), re.M)[:2]
    assert newest == [("Unreleased", ""), (cosen.__version__, citation["date-released"])]


def test_every_python_version_is_tested():
    matrix = WORKFLOWS["tests.yml"]["jobs"]["check"]["strategy"]["matrix"]
    assert matrix["python"] == python_versions()
    assert f"[![Python {', '.join(python_versions())}](" in (ROOT / "README.md").read_text()
    assert PROJECT["requires-python"].startswith(f">={python_versions()[0]}")


def test_lower_bounds_are_tested():
    oldest = pins(ROOT / "constraints-oldest.txt")
    for name, bound in requirements().items():
        if name != "torch":  # tested in one version only
            assert without_zeros(oldest[name]) == without_zeros(bound), name


def test_every_dependency_is_pinned():
    pinned = pins(ROOT / "constraints.txt")
    assert {name.lower() for name in requirements()} <= set(pinned)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_use_targets_of_the_makefile_and_pinned_actions(name):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    assert WORKFLOWS[name]["permissions"] == {}
    for job in WORKFLOWS[name]["jobs"].values():
        for step in job["steps"]:
            if "run" in step:
                command, target, *_ = step["run"].split()
                assert command == "make"
                assert target in targets
            else:
                assert re.search(r"@[0-9a-f]{40}$", step["uses"])


def test_hooks_are_the_tools_of_make_check():
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    makefile = (ROOT / "Makefile").read_text()
    for hook in local["hooks"]:
        tool = hook["entry"].removeprefix(".venv/bin/").split(" --")[0]
        assert f"$(BIN)/{tool} " in makefile


def run(*command, **options):
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path):
    """A folder with gigabytes of free space that is removed after the test."""
    if shutil.disk_usage(tmp_path).free < 5 * 2**30:
        pytest.skip("less than 5 GB of free disk space")
    folder = tmp_path / "installed"
    folder.mkdir()
    yield folder
    if os.name == "nt":
        shutil.rmtree(folder)
    else:  # on some disks this takes minutes, and no test needs to wait for it
        subprocess.run(["sh", "-c", 'rm -rf "$0" >/dev/null 2>&1 &', folder], check=True)


@pytest.mark.processes
def test_the_wheel_works_in_an_empty_environment(folder):
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    probe = (*pip, "download", "--no-deps", "--dest", str(folder), "hatchling")
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pip cannot reach its index: {done.stderr.strip().splitlines()[-1]}")

    run(*pip, "wheel", "--no-deps", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("cosen-*.whl")
    assert wheel.name == f"cosen-{cosen.__version__}-py3-none-any.whl"
    files = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "cosen").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert names == files
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(metadata).decode()
    assert not re.search(
        r"\]\((?!https?:|#)|src(set)?=\"(?!https?:)", text
    )  # relative links would be dead on PyPI

    environment = folder / "environment"
    venv.create(environment, symlinks=os.name != "nt")
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    install = ("install", "--no-compile", "-c", ROOT / "constraints.txt", wheel)
    run(*pip, "--python", scripts / "python", *install)

    empty = folder / "empty"
    empty.mkdir()
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    alone |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "120"}
    where = run(
        scripts / "python", "-c", "import cosen; print(cosen.__file__)", cwd=empty, env=alone
    )
    assert Path(where.strip()).is_relative_to(environment)
    settings = ("--methods", "baseline,cosen", "--seeds", "1", "--epochs", "2", "--out", "study")
    table = run(scripts / "cosen", "compare", "digits", *settings, cwd=empty, env=alone)
    assert re.search(r"^method +accuracy +mean recall", table, re.M), table
    for method in ("baseline", "cosen"):
        assert re.search(rf"^{method} +\d\d\.\d", table, re.M), table
    assert (empty / "study" / "leaderboard.json").exists()
