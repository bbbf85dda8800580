"""Run folders in states that tests need."""

from dataclasses import replace

from pdrn.training.runs import Run


def reopen(run: Run) -> None:
    """Make a run one whose training has not ended."""
    record = run.record()
    assert record is not None
    run.save_record(replace(record, finished=None))
