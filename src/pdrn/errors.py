"""Errors that name a cause and a remedy in one sentence.

The command line prints a `PdrnError` as that sentence. Any other exception is a bug and shows its traceback.
"""

from __future__ import annotations


class PdrnError(Exception):
    """The base of all errors that a user can do something about."""


class InputError(PdrnError, ValueError):
    """An argument, option or setting that cannot be used."""


class UsageError(InputError):
    """A command whose arguments contradict each other; its exit code is 2."""


class AudioError(InputError):
    """Sound that cannot be read, written or restored."""


class UndetectedError(AudioError):
    """No quantizer explains the samples; the message says why."""


class UncertainError(UndetectedError):
    """Too few levels occur to detect the quantizer, but none of them contradicts one."""


class UndefinedError(InputError):
    """A metric that is not defined for these signals."""


class ModelError(InputError):
    """A network file that cannot be used."""


class StorageError(PdrnError, OSError):
    """A file or folder that cannot be read or written."""


class LockedError(StorageError):
    """A file or folder that another process holds."""


class MissingDependencyError(PdrnError, ImportError):
    """A package that an extra of pdrn installs is missing."""


def system_error(error: BaseException | None) -> OSError | None:
    """Return the first error of the operating system in a chain of causes, or None."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error
        error = error.__cause__
    return None


def system_reason(error: BaseException) -> str:
    """Return the operating system's reason for an error, or else the error's own text."""
    return getattr(error, "strerror", None) or str(error)


def printable(text: object, most: int = 10_000) -> str:
    r"""Escape control characters and truncate, so that the text is safe on one terminal line.

    >>> printable("red\x1b[31m\n")
    'red\\x1b[31m\\n'
    """
    written = str(text)
    if len(written) > most:
        written = f"{written[: most // 2]} ... {written[-most // 2 :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in written)
