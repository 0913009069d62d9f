"""Defines the harness's own errors: its own failures, and mistakes of the user or the machine. Broken invariants stay
AssertionErrors.
"""

from __future__ import annotations


class HarnessError(Exception):
    """Is raised if the harness itself failed, so that nothing was judged: exit code 2, unknown."""

    exit_code = 2


class PreconditionError(HarnessError):
    """Is raised before a command begins, for a wrong argument, or a missing program, package or privilege. Exit code 3.

    The message names what is missing and the command that installs it.
    """

    exit_code = 3


def gravest_error(error: BaseException) -> BaseException:
    """Return the gravest of the errors that trio has wrapped in groups: the one to show to the user.

    Our own bugs are graver than the harness's errors, and these are graver than an interruption.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    inside = [gravest_error(each) for each in error.exceptions]
    bugs = [each for each in inside if not isinstance(each, HarnessError | KeyboardInterrupt)]
    troubles = [each for each in inside if isinstance(each, HarnessError)]
    return (bugs or troubles or inside)[0]


def error_message(error: BaseException) -> str:
    """Return the gravest error as one line. The error's type comes first, unless it is a HarnessError, whose message is
    written for users.
    """
    gravest = gravest_error(error)
    message = " ".join(str(gravest).split())
    if message and isinstance(gravest, HarnessError):
        return message
    return f"{type(gravest).__name__}: {message}" if message else type(gravest).__name__


def traceback_text(error: BaseException) -> str:
    """Return Python's traceback as text, with the error's message (`error_message`) as its last line. The message is
    added if Python ends the text otherwise: with dashes after an ExceptionGroup, or with a message of several lines.
    """
    import traceback

    text, said = "".join(traceback.format_exception(error)), error_message(error)
    return text if text.rstrip().endswith(said) else f"{text.rstrip()}\n{said}\n"
