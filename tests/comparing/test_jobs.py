import logging
import subprocess
import sys

import pytest

import study_jobs
from cosen.comparing.jobs import Listener, Note, Outcome, Progress, Schedule, carry_out
from cosen.errors import InputError
from study_jobs import job


def make(name, *after):
    return job(name, study_jobs.write, "runs", after=after)


def names(jobs):
    return [each.name for each in jobs]


@pytest.fixture
def outcomes():
    return []


@pytest.fixture
def schedule(outcomes):
    def make_schedule(*jobs):
        return Schedule(jobs, outcomes.append)

    return make_schedule


def test_jobs_that_others_wait_for_go_first(schedule):
    plan = schedule(make("a"), make("b"), make("c", "base"), make("base"), make("d", "c"))
    assert names(plan.ready()) == ["base", "a", "b"]
    assert plan.take().name == "base"
    assert names(plan.ready()) == ["a", "b"], "taken, but not done"
    plan.end("base", None)
    assert names(plan.ready()) == ["c", "a", "b"]


def test_outcomes_come_as_they_happen_and_return_in_order(schedule, outcomes):
    plan = schedule(make("a"), make("b"))
    assert names([plan.take(), plan.take()]) == ["a", "b"]
    assert plan.take() is None
    plan.end("b", "no")
    assert not plan.is_over
    plan.end("a", None)
    assert plan.is_over
    assert outcomes == [Outcome("b", "no"), Outcome("a")]
    assert plan.outcomes == [Outcome("a"), Outcome("b", "no")]


def test_what_waits_for_a_failure_fails_once(schedule, outcomes):
    plan = schedule(make("a"), make("b", "a"), make("c", "a", "b"), make("d"), make("e", "d", "a"))
    plan.take()
    plan.end("a", "no data")
    assert outcomes == [
        Outcome("a", "no data"),
        Outcome("b", "its starting point a failed"),
        Outcome("c", "its starting point b failed"),
        Outcome("e", "its starting point a failed"),
    ]
    assert names(plan.ready()) == ["d"]


def test_no_jobs_are_over_at_once(schedule):
    assert schedule().is_over


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([make("a"), make("a", "a")], "two jobs are called 'a'"),
        ([make("a", "b")], "a waits for 'b', which is not among the jobs"),
        ([make("a", "b"), make("b", "a")], "wait for each other: . after . after ."),
        ([make("a", "a")], "wait for each other: a after a"),
    ],
)
def test_jobs_that_can_never_all_run_are_refused(jobs, message, schedule):
    with pytest.raises(InputError, match=message):
        schedule(*jobs)


def carry(work, folder, payload=None):
    told = []
    return carry_out(job("it", work, folder, payload), told.append), told


def test_a_job_is_handed_its_folders(tmp_path):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "text").write_text("base ")
    told = []
    it = job("it", study_jobs.write, tmp_path, "it", reads=(tmp_path / "base",))
    assert carry_out(it, told.append) is None
    assert (tmp_path / "it" / "text").read_text() == "base it"
    assert told == [Progress(1, 1)]


def test_an_error_of_ours_is_its_own_reason(tmp_path):
    reason, _ = carry(study_jobs.refuse, tmp_path)
    assert reason == "class 'melanoma' has no training image"
    assert not (tmp_path / "it").exists()


def test_an_error_that_nobody_foresaw_leaves_its_traceback(tmp_path):
    reason, _ = carry(study_jobs.stumble, tmp_path)
    assert reason == "ZeroDivisionError: a first line"
    trace = (tmp_path / "it" / "traceback.txt").read_text()
    assert "study_jobs.py" in trace
    assert "and a second" in trace

    assert carry(study_jobs.write, tmp_path)[0] is None
    assert not (tmp_path / "it" / "traceback.txt").exists(), "of an attempt that is past"


def test_leaving_is_failing(tmp_path):
    assert carry(study_jobs.leave, tmp_path)[0] == "SystemExit: enough"


@pytest.mark.filterwarnings("always:old data")
def test_messages_are_told_once_and_progress_seldom(tmp_path, capfd):
    handlers = logging.getLogger("cosen").handlers
    reason, told = carry(study_jobs.chatter, tmp_path)
    assert reason is None
    notes = [news for news in told if isinstance(news, Note)]
    assert notes == [
        Note(logging.WARNING, "few images of melanoma"),
        Note(logging.WARNING, "UserWarning: old data"),
    ]
    progress = [news for news in told if isinstance(news, Progress)]
    assert progress[0] == Progress(1, 3)
    assert progress[-1] == Progress(3, 3)
    assert len(progress) <= 4
    assert logging.getLogger("cosen").handlers is handlers
    assert capfd.readouterr() == ("", "")


def test_a_note_is_logged_once_with_the_first_job_that_tells_it(caplog):
    heard = []
    listener = Listener(lambda *progress: heard.append(progress))
    listener.hear("smote/0", Note(logging.WARNING, "few images"))
    listener.hear("smote/1", Note(logging.WARNING, "few images"))
    listener.hear("smote/1", Progress(2, 3))
    assert caplog.messages == ["smote/0: few images"]
    assert heard == [("smote/1", 2, 3)]


def test_the_engines_import_nothing_heavy():
    program = (
        "import sys, cosen.comparing.cluster, cosen.comparing.processes; "
        "heavy = {'torch', 'numpy', 'sklearn', 'ray'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
