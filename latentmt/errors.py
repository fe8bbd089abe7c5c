"""How work ends early: by a mistake that a user can correct, or because it was asked to stop.

Whatever a user can cause (a missing file, a misspelt key, a truncated model) is raised as `UserError` with a
message that says what is wrong and where; the command line prints that line and exits with 1. Anything else that
escapes is a defect and keeps its traceback.
"""

import re

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LONGEST = 1000


class UserError(Exception):
    """What is wrong, and where, in one line. A message may quote a file, so control characters are escaped."""

    def __init__(self, message: str) -> None:
        line = _CONTROL.sub(lambda match: ascii(match[0])[1:-1], message)
        super().__init__(line if len(line) <= _LONGEST else f"{line[: _LONGEST - 100]} … {line[-90:]}")


UNFINISHED = 75
"""The exit code of a command that was stopped before its end and goes on if it is given again (EX_TEMPFAIL)."""


class Stopped(SystemExit):
    """A stop was requested. What is finished is kept, and the same command goes on."""

    def __init__(self) -> None:
        super().__init__(UNFINISHED)
