"""One of many files: what is done again, and what is not."""

import errno

import pytest
from tests.cli.test_restore import QUANTIZED, RATE

from pdrn.audio.detection import QuantizerOptions
from pdrn.audio.files import write
from pdrn.cli import batch
from pdrn.cli.batch import Job, Settings, restore_one
from pdrn.errors import AudioError
from pdrn.restoration.restorer import Restorer

SETTINGS = Settings(Restorer(method="cp", iterations=1), QuantizerOptions(bits=5))


@pytest.fixture
def job(tmp_path):
    write(tmp_path / "a.wav", QUANTIZED, RATE, subtype="PCM_16")
    return Job(str(tmp_path / "a.wav"), str(tmp_path / "b.wav"))


@pytest.mark.parametrize(
    ("number", "transient"),
    [(errno.EIO, True), (errno.ESTALE, True), (errno.ENOSPC, False), (errno.ENOENT, False)],
)
def test_only_what_may_pass_by_itself_is_worth_another_attempt(job, monkeypatch, number, transient):
    def fails(*_, **__):
        try:
            raise OSError(number, "no")
        except OSError as error:
            raise AudioError("it cannot be read") from error

    monkeypatch.setattr(batch.Restorer, "restore_file", fails)
    outcome = restore_one(job, SETTINGS)
    assert (outcome.status, outcome.transient) == ("failed", transient)


def test_a_bad_file_is_not(job):
    with open(job.source, "wb") as file:
        file.write(b"RIFFrubbish")
    outcome = restore_one(job, SETTINGS)
    assert (outcome.status, outcome.transient) == ("failed", False)


def test_what_a_worker_left_before_it_died_is_taken_where_it_is_right(job):
    again = Job(job.source, job.target, again=True)
    assert restore_one(job, SETTINGS).status == "restored"
    assert restore_one(job, SETTINGS).status == "failed"
    outcome = restore_one(again, SETTINGS)
    assert (outcome.status, outcome.report.output) == ("restored", job.target)
    with open(job.target, "ab") as file:
        file.write(b"more")
    assert "is there already, and not what" in restore_one(again, SETTINGS).error
