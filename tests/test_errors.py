"""The classes of errors, their causes, and safe printing."""

import errno
import inspect

from hypothesis import given
from hypothesis import strategies as st

from pdrn import errors
from pdrn.errors import PdrnError, StorageError, printable, system_error


def test_all_errors_derive_from_pdrn_error():
    ours = [
        kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__
    ]
    assert len(ours) > 5
    assert all(issubclass(kind, PdrnError) for kind in ours)


@given(text=st.text(), most=st.integers(10, 50))
def test_printable_is_one_line_of_bounded_length(text, most):
    shown = printable(text, most)
    assert shown.isprintable()
    assert len(shown) <= 10 * most + 5  # each character may be escaped as \\U and eight digits
    if text.isprintable() and len(text) <= most:
        assert shown == text


def test_system_error_is_found_in_the_causes():
    error = StorageError("no room")
    error.__cause__ = OSError(errno.ENOSPC, "full")
    assert system_error(error) is error.__cause__
    assert system_error(StorageError("nothing behind it")) is None
    assert system_error(ValueError()) is None
