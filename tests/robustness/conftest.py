import shutil
import sys
from pathlib import Path

import pytest

from cosen.comparing.study_folder import StudyFolder
from cosen.training.run_folder import RunFolder
from small_study import run_here, run_study

MEMORY = 4 * 2**30
"""Bytes that a test may take beyond those of the process before it."""


@pytest.fixture(autouse=True)
def bounded_memory():
    """Taking more memory raises MemoryError, also if the reader hides it: the peak is compared."""
    if sys.platform != "linux":
        pytest.skip("the memory of a process can be read and limited on Linux only")
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak)
    assert grown < MEMORY / 2, "a reader took too much memory"


@pytest.fixture(scope="session")
def finished_study(tmp_path_factory):
    """A study of the baseline and cosen, one seed. Do not change its files."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSEN_CACHE", str(folder / "cache"))
        patch.setattr("cosen.comparing.grid.run_locally", run_here)
        run_study(folder / "study", ["cosen"], epochs=2)
    return folder / "study"


@pytest.fixture
def study(finished_study, tmp_path):
    """A copy of the study that a test may damage."""
    return StudyFolder(shutil.copytree(finished_study, tmp_path / "study"))


@pytest.fixture
def run(study) -> RunFolder:
    """The run of cosen in the copied study."""
    return study.run("cosen", 0)
