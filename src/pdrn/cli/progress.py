"""Callbacks that show training: a bar on a terminal or a line per epoch, and TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from threading import Event, Thread

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from pdrn.errors import MissingDependencyError, PdrnError
from pdrn.training.loop import Callback
from pdrn.training.runs import Entry, Record, Run
from pdrn.workers import interrupts_blocked

POLL_SECONDS = 1.0
"""Interval at which the logs of other processes are read."""


class Display(Callback):
    """Shows the epoch, errors, speed and remaining time on standard error.

    If several share a terminal, a name begins the lines of each.
    """

    def __init__(self, progress: Progress, title: str = "", name: str = "") -> None:
        self.progress, self.title, self.prefix = progress, title or name, f"{name}  " if name else ""
        self.task = progress.add_task("", total=None, figures="", visible=False)

    def on_start(self, run: Run, record: Record, first_epoch: int) -> None:
        steps = record.steps_per_epoch
        self.epochs, done = -(-record.total_steps // steps), (first_epoch - 1) * steps
        spent = [entry["training_seconds"] for entry in run.log() if entry["epoch"] < first_epoch]
        self.started = max(spent, default=0.0), done
        resumed = f", resumed after epoch {first_epoch - 1}" if first_epoch > 1 else ""
        short = record.files_too_short
        self.progress.console.print(
            f"{self.title or run.folder}: {record.parameters:,} weights, "
            f"{self.epochs} epochs of {steps} steps, threads: {record.threads}"
            + (f", processes: {record.processes}" if record.processes > 1 else "")
            + resumed
            + (f"; {short} files are too short and left out" if short else ""),
            soft_wrap=True,
            markup=False,
            emoji=False,
        )
        self.progress.update(self.task, total=record.total_steps, completed=done, visible=True)

    def on_note(self, sentence: str) -> None:
        self.progress.console.print(sentence, soft_wrap=True, markup=False, emoji=False)

    def on_step(self, step: int) -> None:
        self.progress.update(self.task, completed=step)

    def on_epoch(self, entry: Entry) -> None:
        figures = (
            f"{self.prefix}epoch {entry['epoch']}/{self.epochs}  train {1e4 * entry['train_mse']:.3f}e-4  "
            f"dev {1e4 * entry['dev_mse']:.3f}e-4  SNR {entry['dev_snr']:.2f} dB  "
            f"{entry['samples_per_second'] / 1e6:.2f} M samples/s"
        )
        self.progress.update(self.task, figures=figures)
        if not self.progress.console.is_terminal:
            begin, first = self.started
            total = self.progress.tasks[self.task].total or 0
            left = (entry["training_seconds"] - begin) / (entry["step"] - first) * (total - entry["step"])
            self.progress.console.print(f"{figures}  {clock(left)} left", soft_wrap=True)


class Board(Callback):
    """Writes the log for TensorBoard."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingDependencyError(
                "TensorBoard is not installed; leave out --tensorboard, or pip install tensorboard"
            ) from error
        self.writer = SummaryWriter

    def on_start(self, run: Run, record: Record, first_epoch: int) -> None:
        self.board = self.writer(str(run.folder / "tensorboard"), purge_step=1)
        for entry in run.log():  # those of a shorter run were never on this board
            self.on_epoch(entry)

    def on_epoch(self, entry: Entry) -> None:
        for name, value in entry.items():
            if isinstance(value, int | float):
                self.board.add_scalar(name, value, entry["epoch"])
        self.board.flush()


@contextmanager
def display(title: str = "") -> Iterator[Display]:
    """Show a training run while the context lasts."""
    with _progress() as progress:
        yield Display(progress, title)


@contextmanager
def display_runs(runs: Mapping[str, Run]) -> Iterator[Console]:
    """Show runs that other processes train, by polling their logs; yield the console to print on."""
    if not runs:
        yield Console(stderr=True, highlight=False)
        return
    with ExitStack() as stack:
        with interrupts_blocked():  # it starts a thread
            progress = stack.enter_context(_progress())
        readers = [_LogReader(run, Display(progress, name=name)) for name, run in runs.items()]
        is_over = Event()

        def poll() -> None:
            while not is_over.wait(POLL_SECONDS):
                for reader in readers:
                    reader.update()

        thread = Thread(target=poll, daemon=True)
        with interrupts_blocked():
            thread.start()
        try:
            yield progress.console
        finally:
            is_over.set()
            thread.join()
            for reader in readers:
                reader.update()


class _LogReader:
    """Passes new entries of a run's log to a display."""

    def __init__(self, run: Run, display: Display) -> None:
        self.run, self.display = run, display
        self.epoch, self.log_bytes, self.has_started = len(run.log()), run.log_bytes, False

    def update(self) -> None:
        if self.run.log_bytes == self.log_bytes:
            return
        self.log_bytes = self.run.log_bytes
        with suppress(PdrnError):  # the log is being written, or damaged, which training reports
            record = self.run.record()
            new = [entry for entry in self.run.log() if entry["epoch"] > self.epoch]
            if record is None or not new:
                return
            if not self.has_started:
                self.display.on_start(self.run, record, self.epoch + 1)
                self.has_started = True
            for entry in new:
                self.display.on_step(entry["step"])
                self.display.on_epoch(entry)
                self.epoch = entry["epoch"]
            if new[-1]["step"] == record.total_steps:
                self.display.progress.update(self.display.task, visible=False)


def _progress() -> Progress:
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.fields[figures]}"), BarColumn(20), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


def clock(seconds: float) -> str:
    """Return a time as hours, minutes and seconds."""
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
