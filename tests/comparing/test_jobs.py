import logging
import subprocess
import sys
from graphlib import CycleError

import pytest

import study_jobs
from cosen.comparing.jobs import JobProgress, Note, Outcome, Schedule, run_job
from study_jobs import job


def make(name, *after):
    return job(name, study_jobs.write, "runs", after=after)


def names(jobs):
    return [each.name for each in jobs]


@pytest.fixture
def outcomes():
    return []


@pytest.fixture
def progress():
    return []


@pytest.fixture
def schedule(outcomes, progress):
    def make_schedule(*jobs):
        return Schedule(jobs, lambda *report: progress.append(report), outcomes.append)

    return make_schedule


def end(plan, name, reason=None):
    plan.handle(name, Outcome(name, reason))


def next_names(plan):
    """The names of all jobs that can start now."""
    return names(iter(plan.next_job, None))


def test_jobs_that_others_depend_on_start_first(schedule):
    plan = schedule(make("a"), make("b"), make("c", "base"), make("base"), make("d", "c"))
    assert plan.next_job().name == "base"
    assert plan.next_job().name == "a", "base has started, but not ended"
    end(plan, "base")
    assert next_names(plan) == ["c", "b"]
    end(plan, "a")
    assert next_names(plan) == []
    end(plan, "c")
    assert next_names(plan) == ["d"]


def test_outcomes_are_reported_at_once_and_returned_in_order(schedule, outcomes):
    plan = schedule(make("a"), make("b"))
    assert next_names(plan) == ["a", "b"]
    end(plan, "b", "no")
    assert not plan.is_over
    end(plan, "a")
    assert plan.is_over
    assert outcomes == [Outcome("b", "no"), Outcome("a")]
    assert plan.outcomes == [Outcome("a"), Outcome("b", "no")]


def test_the_dependents_of_a_failed_job_fail_once(schedule, outcomes):
    plan = schedule(make("a"), make("b", "a"), make("c", "a", "b"), make("d"), make("e", "d", "a"))
    plan.next_job()
    end(plan, "a", "no data")
    assert outcomes == [
        Outcome("a", "no data"),
        Outcome("b", "not started because a failed"),
        Outcome("c", "not started because b failed"),
        Outcome("e", "not started because a failed"),
    ]
    assert next_names(plan) == ["d"]


def test_a_schedule_without_jobs_is_over(schedule):
    assert schedule().is_over


@pytest.mark.parametrize("jobs", [[make("a", "b"), make("b", "a")], [make("a", "a")]])
def test_a_cycle_raises(jobs, schedule):
    with pytest.raises(CycleError, match="cycle"):
        schedule(*jobs)


def run(work, folder, payload=None, **options):
    """Runs a job; returns the reason for its failure, and its other messages."""
    messages = []
    run_job(job("it", work, folder, payload, **options), messages.append)
    *others, outcome = messages
    assert outcome.name == "it"
    return outcome.reason, others


def test_a_job_gets_its_folders(tmp_path):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "text").write_text("base ")
    reason, messages = run(study_jobs.write, tmp_path, "it", reads=(tmp_path / "base",))
    assert reason is None
    assert (tmp_path / "it" / "text").read_text() == "base it"
    assert messages == [JobProgress(1, 1)]


def test_the_message_of_a_cosen_error_is_the_reason(tmp_path):
    reason, _ = run(study_jobs.refuse, tmp_path)
    assert reason == "class 'melanoma' has no training image"
    assert not (tmp_path / "it").exists()


def test_another_error_leaves_its_traceback(tmp_path):
    reason, _ = run(study_jobs.stumble, tmp_path)
    assert reason == "ZeroDivisionError: a first line"
    trace = (tmp_path / "it" / "traceback.txt").read_text()
    assert "study_jobs.py" in trace
    assert "and a second" in trace

    assert run(study_jobs.write, tmp_path)[0] is None
    assert not (tmp_path / "it" / "traceback.txt").exists(), "it is from an earlier attempt"


def test_sys_exit_is_a_failure(tmp_path):
    assert run(study_jobs.leave, tmp_path)[0] == "SystemExit: enough"


@pytest.mark.filterwarnings("always:old data")
def test_each_note_is_sent_once_and_progress_a_few_times(tmp_path, capfd):
    handlers = logging.getLogger("cosen").handlers
    reason, messages = run(study_jobs.chatter, tmp_path)
    assert reason is None
    notes = [message for message in messages if isinstance(message, Note)]
    assert notes == [
        Note(logging.WARNING, "few images of melanoma"),
        Note(logging.WARNING, "UserWarning: old data"),
    ]
    progress = [message for message in messages if isinstance(message, JobProgress)]
    assert progress[0] == JobProgress(1, 3)
    assert progress[-1] == JobProgress(3, 3)
    assert len(progress) <= 4
    assert logging.getLogger("cosen").handlers is handlers
    assert capfd.readouterr() == ("", "")


def test_a_note_is_logged_once_with_the_first_job_that_sends_it(schedule, progress, caplog):
    plan = schedule(make("smote/0"), make("smote/1"))
    plan.handle("smote/0", Note(logging.WARNING, "few images"))
    plan.handle("smote/1", Note(logging.WARNING, "few images"))
    plan.handle("smote/1", JobProgress(2, 3))
    assert caplog.messages == ["smote/0: few images"]
    assert progress == [("smote/1", 2, 3)]


def test_the_engines_import_nothing_heavy():
    program = (
        "import sys, cosen.comparing.cluster, cosen.comparing.processes; "
        "heavy = {'torch', 'numpy', 'sklearn', 'ray'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
