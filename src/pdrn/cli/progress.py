"""How training looks: a line that moves on a terminal, a line per epoch elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from threading import Event, Thread

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from pdrn.errors import InputError
from pdrn.training.loop import Callback
from pdrn.training.runs import Entry, Record, Run
from pdrn.workers import interrupts_blocked

SECONDS_BETWEEN_LOOKS = 1.0
"""How often the logs of other processes are read."""


class Display(Callback):
    """Shows the epoch, errors, speed and the time that is left, on standard error.

    One of several that share a terminal has a name, which begins every line.
    """

    def __init__(self, progress: Progress, title: str = "", name: str = "") -> None:
        self.progress, self.title, self.prefix = progress, title or name, f"{name}  " if name else ""
        self.task = progress.add_task("", total=None, figures="", visible=False)
        self.begun = (0.0, 0)

    def on_start(self, run: Run, record: Record, first_epoch: int) -> None:
        steps = record.steps_per_epoch
        self.epochs, done = -(-record.total_steps // steps), (first_epoch - 1) * steps
        self.begun = (time.monotonic(), done)
        going_on = f", going on after epoch {first_epoch - 1}" if first_epoch > 1 else ""
        short = record.files_too_short
        self.progress.console.print(
            f"{self.title or run.folder}: {record.parameters:,} weights, "
            f"{self.epochs} epochs of {steps} steps, threads: {record.threads}"
            + (f", processes: {record.processes}" if record.processes > 1 else "")
            + going_on
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

    def begun_ago(self, seconds: float) -> None:
        """Hear that training began before this could."""
        self.begun = (time.monotonic() - seconds, self.begun[1])

    def end(self) -> None:
        """Make room for others."""
        self.progress.update(self.task, visible=False)

    def on_epoch(self, entry: Entry) -> None:
        figures = (
            f"{self.prefix}epoch {entry['epoch']}/{self.epochs}  train {1e4 * entry['train_mse']:.3f}e-4  "
            f"dev {1e4 * entry['dev_mse']:.3f}e-4  SNR {entry['dev_snr']:.2f} dB  "
            f"{entry['samples_per_second'] / 1e6:.2f} M samples/s"
        )
        self.progress.update(self.task, figures=figures)
        if not self.progress.console.is_terminal:
            begin, first = self.begun
            total = self.progress.tasks[self.task].total or 0
            left = (time.monotonic() - begin) / (entry["step"] - first) * (total - entry["step"])
            self.progress.console.print(f"{figures}  {clock(left)} left", soft_wrap=True)


class Board(Callback):
    """Writes the log for TensorBoard."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InputError(
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
def following(runs: Mapping[str, Run]) -> Iterator[Console]:
    """Show how runs go that other processes train, by their logs, while the context lasts.

    What else there is to say meanwhile is for the console.
    """
    if not runs:
        yield Console(stderr=True, highlight=False)
        return
    with ExitStack() as stack:
        with interrupts_blocked():  # it starts a thread
            progress = stack.enter_context(_progress())
        followers = [_Follower(run, Display(progress, name=name)) for name, run in runs.items()]
        is_over = Event()

        def follow() -> None:
            while not is_over.wait(SECONDS_BETWEEN_LOOKS):
                for follower in followers:
                    follower.look()

        thread = Thread(target=follow, daemon=True)
        with interrupts_blocked():
            thread.start()
        try:
            yield progress.console
        finally:
            is_over.set()
            thread.join()
            for follower in followers:
                follower.look()


class _Follower:
    """Tells a display what it finds in the log of a run, from where that stands now."""

    def __init__(self, run: Run, display: Display) -> None:
        self.run, self.display = run, display
        self.epoch, self.log_bytes, self.has_begun = len(run.log()), run.log_bytes, False

    def look(self) -> None:
        if self.run.log_bytes == self.log_bytes:
            return
        self.log_bytes = self.run.log_bytes
        with suppress(OSError, ValueError):  # it is being written, or damaged: whoever trains it will tell
            record, log = self.run.record(), self.run.log()
            new = [entry for entry in log if entry["epoch"] > self.epoch]
            if record is None or not new:
                return
            if not self.has_begun:
                self.display.on_start(self.run, record, self.epoch + 1)
                before = log[-len(new) - 1]["training_seconds"] if len(log) > len(new) else 0.0
                self.display.begun_ago(new[-1]["training_seconds"] - before)
                self.has_begun = True
            for entry in new:
                self.display.on_step(entry["step"])
                self.display.on_epoch(entry)
                self.epoch = entry["epoch"]
            if new[-1]["step"] == record.total_steps:
                self.display.end()


def _progress() -> Progress:
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.fields[figures]}"), BarColumn(20), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


def clock(seconds: float) -> str:
    """Return a time as hours, minutes and seconds."""
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
