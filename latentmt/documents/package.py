"""A document that is a zip with XML in it: which members are read, and how, says its format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from latentmt.documents.archive import Archive
from latentmt.documents.paragraphs import Vocabulary
from latentmt.documents.tree import parse, serialise
from latentmt.results import Translation


class Package:
    """A zip with texts in some of its members. Trees are made when they are needed, one at a time."""

    def __init__(self, archive: Archive, members: Mapping[str, Vocabulary]) -> None:
        self._archive, self._members = archive, members
        self._counts: dict[str, int] = {}
        """How many texts each member has."""
        self.texts: Sequence[str] = []
        self.inline = False
        found: list[str] = []
        for name, vocabulary in members.items():
            before = len(found)
            for paragraph in vocabulary.read(parse(archive.member(name), name)):
                found += paragraph.texts
                self.inline |= paragraph.inline
            self._counts[name] = len(found) - before
        self.texts = found

    def render(self, translations: Sequence[Translation]) -> bytes:
        """The file with these translations. A member without a changed text keeps its bytes."""
        remaining = iter(translations)
        changed: dict[str, bytes] = {}
        for name, count in self._counts.items():
            mine = iter(list(islice(remaining, count)))
            if not count:
                continue
            root = parse(self._archive.member(name), name)
            paragraphs = list(self._members[name].read(root))
            written = [paragraph.translate(list(islice(mine, len(paragraph.texts)))) for paragraph in paragraphs]
            if any(written):
                changed[name] = serialise(root)
        return self._archive.replaced(changed)
