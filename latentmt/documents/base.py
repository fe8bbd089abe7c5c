"""What a document is: texts to translate, and everything around them. How texts are translated is not known here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from latentmt.results import Translation


@runtime_checkable
class Document(Protocol):
    """A file, read. What is not text in it stays as it is, byte for byte wherever its format allows."""

    texts: Sequence[str]
    """What is translated, in the order of the document. Each may have several sentences."""
    inline: bool
    """Whether texts have inline elements, which are placed by the alignment of their translations."""

    def render(self, translations: Sequence[Translation]) -> bytes:
        """The file with these translations in place of its texts, one for each."""
        ...
