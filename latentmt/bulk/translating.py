"""Translates rows so that none of them stops the others.

A row that cannot be translated keeps its text and says why. The result depends on the rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from latentmt.bulk.rows import NO_TEXT, Row
from latentmt.bulk.writing import TranslatedRow

FAILED = "translation failed"
KILLED = "translating it ended the process"
SLOW = "translating it took too long"


class RowError(Exception):
    """An error that another process met, as it described it."""


Translate = Callable[[Sequence[str]], Sequence[str]]


def translate_rows(rows: Sequence[Row], translate: Translate, max_chars: int) -> list[TranslatedRow]:
    """The translation of each row. Rows without text and rows that are too long are not translated."""
    chosen = [number for number, row in enumerate(rows) if row.text is not None and len(row.text) <= max_chars]
    translated = dict(zip(chosen, _careful([rows[number].text or "" for number in chosen], translate), strict=True))
    return [
        _with_problem(translated[number], row.problem) if number in translated else _untranslated(row, max_chars)
        for number, row in enumerate(rows)
    ]


def too_long(max_chars: int) -> str:
    return f"longer than {max_chars:,} characters: not translated"


def kind_of(error: str) -> str:
    """The kind of an error, without its details."""
    return FAILED if error.startswith(FAILED) else error


def describe(error: Exception) -> str:
    """An error in one line, the same from any process."""
    return str(error) if isinstance(error, RowError) else " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _careful(texts: list[str], translate: Translate) -> list[TranslatedRow]:
    """All texts at once; if that fails, half of them, and so on, down to the one that fails."""
    if not texts:
        return []
    try:
        return [TranslatedRow(text) for text in translate(texts)]
    except Exception as error:  # whatever it is, it is the row's, and other rows go on
        if len(texts) == 1:
            return [TranslatedRow(texts[0], f"{FAILED}: {describe(error)}")]
    middle = len(texts) // 2
    return _careful(texts[:middle], translate) + _careful(texts[middle:], translate)


def _untranslated(row: Row, max_chars: int) -> TranslatedRow:
    if row.text is None:
        return TranslatedRow(None, row.problem or NO_TEXT)
    return TranslatedRow(row.text, row.problem or too_long(max_chars))


def _with_problem(row: TranslatedRow, problem: str | None) -> TranslatedRow:
    return TranslatedRow(row.text, row.error or problem)
