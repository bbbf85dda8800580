"""Run folders in states that tests need."""

from pdrn.training.runs import Run


def reopen(run: Run) -> None:
    """Make a run one whose training has not ended."""
    run.save_record({name: value for name, value in (run.record() or {}).items() if name != "finished"})
