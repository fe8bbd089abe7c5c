"""The one exception that means: a user can correct this.

Whatever a user can cause (a missing file, a misspelt key, a truncated model) is raised as `UserError` with a
message that says what is wrong and where; the command line prints that line and exits with 1. Anything else that
escapes is a defect and keeps its traceback.
"""


class UserError(Exception):
    """What is wrong, and where, in one line."""
