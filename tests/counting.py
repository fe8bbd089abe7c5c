"""Counts what a function does: lines of Python, steps of regular expressions, and characters that C code reads.

Time would say the same, but differently each time. Regular expressions are run twice: by `re`, whose matches are
returned, and by a backtracking matcher that counts each character it looks at.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby, islice
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from types import FrameType, ModuleType
from typing import Any

import jaxtyping

MODULES = (
    "latentmt.text.",
    "latentmt.data.normalise",
    "latentmt.data.spans",
    "latentmt.documents.",
    "latentmt.serve.",
    "latentmt.translator",
)
"""Where lines and regular expressions are counted."""

Continuation = Callable[[int], bool]
Matcher = Callable[[int, Continuation], bool]


class Counter:
    """The operations so far."""

    total = 0

    def add(self, number: int = 1) -> None:
        self.total += number


class _Steps:
    """A pattern as matchers: each is called with a position and what must match after it."""

    def __init__(self, pattern: re.Pattern[Any], counter: Counter) -> None:
        self._text, self._end, self._counter = "", 0, counter
        self._matcher = self._sequence(_parser.parse(pattern.pattern, pattern.flags), pattern.flags)

    def matches(self, text: str | bytes, position: int, end: int) -> bool:
        self._text, self._end = text if isinstance(text, str) else text.decode("latin-1"), end
        return self._matcher(position, lambda _: True)

    def _sequence(self, items: Any, flags: int) -> Matcher:
        parts = [self._item(kind, value, flags) for kind, value in items]

        def match(position: int, rest: Continuation, number: int = 0) -> bool:
            if number == len(parts):
                return rest(position)
            return parts[number](position, lambda after: match(after, rest, number + 1))

        return match

    def _item(self, kind: Any, value: Any, flags: int) -> Matcher:
        if kind in (op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY):
            return self._character(kind, value, flags)
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            return self._repeat(kind, *value, flags)
        if kind == op.SUBPATTERN:
            return self._sequence(value[3], (flags | value[1]) & ~value[2])
        if kind == op.BRANCH:
            branches = [self._sequence(branch, flags) for branch in value[1]]
            return lambda position, rest: any(branch(position, rest) for branch in branches)
        if kind in (op.ASSERT, op.ASSERT_NOT):
            inner, wanted = self._sequence(value[1], flags), kind == op.ASSERT
            back = value[1].getwidth()[0] if value[0] < 0 else 0

            def look(position: int, rest: Continuation) -> bool:
                found = position >= back and inner(position - back, lambda _: True)
                return found == wanted and rest(position)

            return look
        assert kind == op.AT, kind
        return lambda position, rest: self._at(value, position) and rest(position)

    def _character(self, kind: Any, value: Any, flags: int) -> Matcher:
        ignore_case, any_character = flags & re.IGNORECASE, kind == op.ANY and flags & re.DOTALL

        def match(position: int, rest: Continuation) -> bool:
            self._counter.add()
            if position >= self._end:
                return False
            character = self._text[position]
            forms = {character, character.lower(), character.upper()} if ignore_case else {character}
            fits = any_character or any(_fits(kind, value, form) for form in forms)
            return bool(fits) and rest(position + 1)

        return match

    def _repeat(self, kind: Any, low: int, high: Any, items: Any, flags: int) -> Matcher:
        inner, most = self._sequence(items, flags), sys.maxsize if high == op.MAXREPEAT else int(high)

        def ends(position: int) -> Iterator[int]:
            """The positions after each repetition, each taken as the first way in which it matches."""
            yield position
            for _ in range(most):
                found: list[int] = []
                if not inner(position, lambda after: found.append(after) or True) or found[0] == position:  # type: ignore[func-returns-value] # noqa: B023
                    return
                position = found[0]
                yield position

        def match(position: int, rest: Continuation) -> bool:
            if kind == op.MIN_REPEAT:
                return any(rest(end) for end in islice(ends(position), low, None))
            after = list(ends(position))
            tried = after[:low:-1] + after[low : low + 1]
            return any(rest(end) for end in (tried[:1] if kind == op.POSSESSIVE_REPEAT else tried))

        return match

    def _at(self, value: Any, position: int) -> bool:
        def is_word(at: int) -> bool:
            return 0 <= at < self._end and (self._text[at].isalnum() or self._text[at] == "_")

        self._counter.add()
        if value == op.AT_BEGINNING:
            return position == 0
        if value in (op.AT_END_STRING, op.AT_END):
            return position == self._end
        assert value == op.AT_BOUNDARY, value
        return is_word(position - 1) != is_word(position)


def _fits(kind: Any, value: Any, character: str) -> bool:
    if kind == op.ANY:
        return character != "\n"
    if kind == op.IN:
        negated = value[0] == (op.NEGATE, None)
        return any(_fits(*item, character) for item in value[negated:]) != negated
    if kind == op.RANGE:
        return bool(value[0] <= ord(character) <= value[1])
    if kind == op.CATEGORY:
        name, negated = str(value).rpartition("_")[2], "_NOT_" in str(value)
        word = character.isalnum() or character == "_"
        return {"WORD": word, "DIGIT": character.isdecimal(), "SPACE": character.isspace()}[name] != negated
    return (chr(value) == character) == (kind == op.LITERAL)


@contextmanager
def _untraced() -> Iterator[None]:
    trace, profile = sys.gettrace(), sys.getprofile()
    sys.setprofile(None)
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(trace)
        sys.setprofile(profile)


class CountingPattern:
    """A compiled pattern that counts its steps."""

    def __init__(self, pattern: re.Pattern[Any], counter: Counter) -> None:
        self._pattern, self._counter = pattern, counter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pattern, name)

    @functools.cached_property
    def _steps(self) -> _Steps:
        return _Steps(self._pattern, self._counter)

    def _scan(self, text: str, first: int, last: int, end: int, found: re.Match[str] | None) -> None:
        """Try the positions from the first to the last, where it matches if it does."""
        with _untraced():  # or the matcher would be counted, too
            for position in range(first, last + 1):
                matched = self._steps.matches(text, position, end)
                assert matched == (found is not None and found.start() == position), (self._pattern, text, position)

    def match(self, text: str, start: int = 0, end: int = sys.maxsize) -> re.Match[str] | None:
        found = self._pattern.match(text, start, end)
        self._scan(text, start, start, min(end, len(text)), found)
        return found

    def fullmatch(self, text: str) -> re.Match[str] | None:
        self._counter.add(len(text))
        return self._pattern.fullmatch(text)

    def search(self, text: str, start: int = 0, end: int = sys.maxsize) -> re.Match[str] | None:
        found = self._pattern.search(text, start, end)
        end = min(end, len(text))
        self._scan(text, start, found.start() if found else end, end, found)
        return found

    def finditer(self, text: str, start: int = 0, end: int = sys.maxsize) -> Iterator[re.Match[str]]:
        for found in self._pattern.finditer(text, start, end):
            self._scan(text, start, found.start(), min(end, len(text)), found)
            yield found
            start = found.end() + (found.end() == found.start())
        self._scan(text, start, min(end, len(text)), min(end, len(text)), None)

    def findall(self, text: str) -> list[Any]:
        list(self.finditer(text))
        return self._pattern.findall(text)

    def sub(self, new: Any, text: str) -> str:
        list(self.finditer(text))
        return self._pattern.sub(new, text)

    def subn(self, new: str, text: str) -> tuple[str, int]:
        list(self.finditer(text))
        return self._pattern.subn(new, text)


_compiled = functools.cache(CountingPattern)


class _CountingRe:
    """`re` with such patterns."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def __getattr__(self, name: str) -> Any:
        if name in ("finditer", "findall", "search", "match", "fullmatch"):
            return lambda pattern, text, flags=0: getattr(self.compile(pattern, flags), name)(text)
        return getattr(re, name)

    def compile(self, pattern: str, flags: int = 0) -> CountingPattern:
        with _untraced():
            return _compiled(re.compile(pattern, flags), self._counter)

    def sub(self, pattern: str, new: str, text: str) -> str:
        return self.compile(pattern).sub(new, text)


class _CountingUnicode:
    """`unicodedata` whose `normalize` counts as it works: marks in a row are sorted by insertion."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def __getattr__(self, name: str) -> Any:
        return getattr(unicodedata, name)

    def normalize(self, form: Any, text: str) -> str:
        marks = groupby(unicodedata.normalize("NFD", text), lambda character: unicodedata.combining(character) > 0)
        runs = [len(list(run)) for is_mark, run in marks if is_mark]
        self._counter.add(len(text) + sum(run * run for run in runs))
        return unicodedata.normalize(form, text)


@contextmanager
def _replaced(counter: Counter) -> Iterator[None]:
    """In the modules, regular expressions and Unicode's tables count."""

    def counting(value: Any) -> Any:
        if isinstance(value, re.Pattern):
            return _compiled(value, counter)
        if isinstance(value, tuple) and value and isinstance(value[0], re.Pattern):
            return tuple(map(counting, value))
        return {id(re): _CountingRe(counter), id(unicodedata): _CountingUnicode(counter)}.get(id(value), value)

    changed: list[tuple[ModuleType, str, Any]] = []
    try:
        for module in [module for name, module in sys.modules.items() if name.startswith(MODULES)]:
            for name, value in list(vars(module).items()):
                if (other := counting(value)) is not value:
                    changed.append((module, name, value))
                    setattr(module, name, other)
        yield
    finally:
        for module, name, value in changed:
            setattr(module, name, value)


@contextmanager
def _unchecked() -> Iterator[None]:
    """Types are not checked meanwhile."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def operations(function: Callable[[], object]) -> int:
    """How many operations a call takes."""
    counter = Counter()
    ours = tuple(f"/{name.replace('.', '/')}" for name in MODULES)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if event == "call" and not any(name in frame.f_code.co_filename for name in ours):
            return None
        counter.add(event == "line")
        return trace

    def profile(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and isinstance(text := getattr(called, "__self__", None), str | bytes):
            counter.add(len(text))

    sys.setrecursionlimit(20_000)
    with _replaced(counter), _unchecked():
        before = sys.gettrace(), sys.getprofile()
        sys.settrace(trace)
        sys.setprofile(profile)
        try:
            function()
        finally:
            sys.settrace(before[0])
            sys.setprofile(before[1])
    return counter.total
