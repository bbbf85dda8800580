"""One of many files: what is done again, and what is not."""

import errno

import pytest
from tests.cli.test_restore import QUANTIZED, RATE

from pdrn.audio.files import write
from pdrn.audio.levels import Description
from pdrn.cli import batch
from pdrn.cli.batch import Job, Settings, do
from pdrn.errors import AudioError
from pdrn.restoration.restorer import Restorer

SETTINGS = Settings(Restorer(iterations=1), Description(bits=5), None, False, False, False, False)


@pytest.fixture
def job(tmp_path):
    write(tmp_path / "a.wav", QUANTIZED, RATE, subtype="PCM_16")
    return Job(str(tmp_path / "a.wav"), str(tmp_path / "b.wav"))


@pytest.mark.parametrize(
    ("number", "passing"),
    [(errno.EIO, True), (errno.ESTALE, True), (errno.ENOSPC, False), (errno.ENOENT, False)],
)
def test_only_what_may_pass_by_itself_is_worth_another_attempt(job, monkeypatch, number, passing):
    def fails(*_, **__):
        try:
            raise OSError(number, "no")
        except OSError as error:
            raise AudioError("it cannot be read") from error

    monkeypatch.setattr(batch, "restore_file", fails)
    outcome = do(job, SETTINGS, b"")
    assert (outcome.status, outcome.passing) == ("failed", passing)


def test_a_bad_file_is_not(job):
    with open(job.source, "wb") as file:
        file.write(b"RIFFrubbish")
    outcome = do(job, SETTINGS, b"")
    assert (outcome.status, outcome.passing) == ("failed", False)


def test_what_a_worker_left_before_it_died_is_taken_where_it_is_right(job):
    again = Job(job.source, job.target, again=True)
    assert do(job, SETTINGS, b"").status == "restored"
    assert do(job, SETTINGS, b"").status == "failed"
    outcome = do(again, SETTINGS, b"")
    assert (outcome.status, outcome.report.output) == ("restored", job.target)
    with open(job.target, "ab") as file:
        file.write(b"more")
    assert "is there already, and not what" in do(again, SETTINGS, b"").error
