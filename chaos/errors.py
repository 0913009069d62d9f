"""The harness's own errors, by whose fault they are. Broken invariants stay AssertionErrors."""

from __future__ import annotations


class HarnessError(Exception):
    """Something of the harness did not work, so nothing was judged: exit code 2, unknown."""

    exit_code = 2


class PreconditionError(HarnessError):
    """Asked for what cannot be: a wrong argument, a missing program or privilege. Exit code 3, before anything began.

    The message names what is missing and the command that provides it.
    """

    exit_code = 3


def trouble_of(error: BaseException) -> BaseException:
    """The error to show to a person when trio has wrapped several in groups: the gravest one.

    Our own bugs first, then the harness's trouble, then the interruption.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    inside = [trouble_of(each) for each in error.exceptions]
    bugs = [each for each in inside if not isinstance(each, HarnessError | KeyboardInterrupt)]
    troubles = [each for each in inside if isinstance(each, HarnessError)]
    return (bugs or troubles or inside)[0]


def said_by(error: BaseException) -> str:
    """The gravest error in a line: its message, and before it its type, unless the harness worded it for people."""
    gravest = trouble_of(error)
    message = " ".join(str(gravest).split())
    if message and isinstance(gravest, HarnessError):
        return message
    return f"{type(gravest).__name__}: {message}" if message else type(gravest).__name__


def traceback_of(error: BaseException) -> str:
    """The traceback as Python has it. Its last line says what is wrong, also where that of a group would be dashes, and
    that of a message the last of several lines.
    """
    import traceback

    text, said = "".join(traceback.format_exception(error)), said_by(error)
    return text if text.rstrip().endswith(said) else f"{text.rstrip()}\n{said}\n"
