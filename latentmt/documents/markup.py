"""HTML → the texts in it → the same HTML around their translations.

The HTML is read as a browser reads it (lexbor) and written as the standard says. So what comes back is what a browser
made of the source: tags are closed and nested properly, names are in lower case, values are quoted. Elements, their
attributes and what is not translated stay what they were.

The content between two block tags is one text, inline tags included. Line breaks in it have no meaning. `tags` puts
inline tags back, and what must not be translated: code, scripts, comments, images, `translate="no"`. An inline element
with a block in it ends the text, as a block does. Attributes are not translated.

Some HTML means something else each time that it is read and written. So the result is read once more, in all ways in
which a browser may read it. If it has an element or an attribute that the source had not, the source is returned.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from latentmt.documents.flow import MAX_INLINE_DEPTH, Event, Text, parts
from latentmt.documents.tags import escape, insert_tags
from latentmt.errors import UserError
from latentmt.results import Translation


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


INLINE = _names(
    """
    a abbr acronym b bdi bdo big cite data del dfn em font i ins label mark q s small span strike strong sub sup time
    tt u
    """
)
"""Elements that are part of a sentence."""
INLINE_VERBATIM = _names("code kbd samp var")
VERBATIM = INLINE_VERBATIM | _names(
    "iframe math noembed noframes noscript plaintext pre script style svg template textarea xmp"
)
"""Elements whose content is not translated. All whose text is no HTML are among them."""
_OPAQUE = _names("script style template")
INLINE_VOID = _names("img wbr")
VOID = INLINE_VOID | _names(
    "area base basefont bgsound br col embed frame hr input keygen link meta param source track"
)
"""Elements without an end tag."""
_MAX_CLONES = 1000
"""Elements that reading may add to those of the source, for formatting that is not closed where it should be."""

_BODY = "body"
_DOCUMENT = ""
_CONTEXTS = {
    "tr": ("td", "th"),
    "tbody": ("tr",),
    "table": ("tbody", "thead", "tfoot", "caption", "colgroup"),
    "colgroup": ("col",),
    "select": ("option", "optgroup"),
    _DOCUMENT: ("!doctype", "html", "head", "body", "frameset"),
}
"""The element in which a fragment that begins with these is read; a browser would drop them elsewhere."""
_CONTEXT_OF = {name: context for context, names in _CONTEXTS.items() for name in names}
_FIRST_TAG = re.compile(r"\s*+(?:<!--(?:(?!-->).)*+-->\s*+)*+<(!?[a-z]+)", re.IGNORECASE | re.DOTALL)
_DOCTYPE = re.compile(r"\s*+(<!doctype[^>]*+>)", re.IGNORECASE)


class Document:
    """HTML: its texts, and the markup around them."""

    def __init__(self, source: str) -> None:
        self._source = source
        first = _FIRST_TAG.match(source)
        self._context = _CONTEXT_OF.get(first[1].lower(), _BODY) if first else _BODY
        self._parts = list(parts(list(_events(source, self._context))))
        self.texts = [part.text for part in self._parts if isinstance(part, Text)]

    def render(self, translations: Sequence[Translation]) -> str:
        """The HTML with these translations in place of its texts; the source if an element would be gained."""
        remaining = iter(translations)
        rendered = "".join(
            part if isinstance(part, str) else part.before + insert_tags(part.root, next(remaining)) + part.after
            for part in self._parts
        )
        return rendered if self._gains_nothing(rendered) else self._source

    def _gains_nothing(self, rendered: str) -> bool:
        """Whether it has no elements that the source lacks, wherever a page puts it, and with scripts or without."""
        scripting = (False, True) if "<noscript" in self._source.lower() else (False,)
        return all(
            _elements(rendered, context, scripts) <= _elements(self._source, context, scripts)
            for context in dict.fromkeys((self._context, _BODY, "template", _DOCUMENT))
            for scripts in scripting
        )


def _read(source: str, context: str, scripting: bool = False) -> LexborHTMLParser:
    """The tree of a document, or of a fragment within an element."""
    # Without events: the standard has `selectedcontent` repeat an option, which would be an element more.
    options = LexborDocumentOptions.WO_EVENTS
    if context == _DOCUMENT:
        return LexborHTMLParser(source, options=options, scripting=scripting)
    return LexborHTMLParser(source, is_fragment=True, fragment_tag=context, options=options, scripting=scripting)


def _first(tree: LexborHTMLParser) -> LexborNode | None:
    """The first of the topmost nodes."""
    root = tree.root
    if root is None or root.parent is not None:
        return root and root.parent and root.parent.first_child
    return root if root.next is None else root.next.prev  # the root of a fragment is written with all its siblings


def _elements(source: str, context: str, scripting: bool) -> Counter[str]:
    """The elements, and the attributes of each. Scripts and styles are one with their text, templates with all in them.

    A stray </p> or </br> is an element within a page and none before it begins, so these two are left out.
    """
    found = Counter[str]()
    for node, entered in _walk(_first(_read(source, context, scripting)), verbatim=False):
        if entered and node.is_element_node:
            attributes = node.attributes
            if attributes or node.tag not in ("p", "br"):
                found[(node.html or "").replace("\n", "") if node.tag in _OPAQUE else node.tag or ""] += 1
            found.update(f"{node.tag} {name}={value or ''}" for name, value in attributes.items())
    return found


def _walk(node: LexborNode | None, verbatim: bool) -> Iterator[tuple[LexborNode, bool]]:
    """A node, what is in it and what follows it, in order: when entered, and elements also when left.

    `verbatim`: what is not translated is not entered.
    """
    path: list[LexborNode] = []
    while node is not None or path:
        if node is None:
            node = path.pop()
            yield node, False
            node = node.next
            continue
        yield node, True
        if node.is_element_node and not (verbatim and _is_verbatim(node)):
            path.append(node)
            node = node.first_child
        else:
            node = node.next


def _is_verbatim(node: LexborNode) -> bool:
    """Whether an element is not translated."""
    if node.tag in VERBATIM:
        return True
    attributes = node.attributes
    if not attributes:
        return False
    excluded = (attributes.get("translate") or "").strip().lower() == "no"
    return excluded or "notranslate" in (attributes.get("class") or "").split()


def _events(source: str, context: str) -> Iterator[Event]:
    """The HTML as events. An element that is verbatim is one event."""
    tree, depth = _read(source, context), 0
    for count, (node, entered) in enumerate(_walk(_first(tree), verbatim=True)):
        if count > 2 * (len(source) + _MAX_CLONES):
            raise UserError("HTML that has far more elements when it is read: close formatting where it is opened")
        if node.is_text_node:
            text = node.text_content or ""
            yield Event(escape(text), "text", text)
        elif node.tag == "-doctype":
            doctype = _DOCTYPE.match(source)
            yield Event(doctype[1] if doctype else node.html or "", "boundary")
        elif not node.is_element_node:  # a comment or the like
            yield Event(node.html or "", "atom")
        elif _is_verbatim(node):
            inline = node.tag in INLINE or node.tag in INLINE_VERBATIM
            yield Event(_verbatim(node), "atom" if inline else "boundary")
        elif node.tag in VOID:
            if entered:
                yield Event(_start_tag(node), "atom" if node.tag in INLINE_VOID else "boundary")
        else:
            inline = node.tag in INLINE
            depth += inline and entered
            tag = _start_tag(node) if entered else f"</{node.tag}>"
            yield Event(tag, ("open" if entered else "close") if inline and depth <= MAX_INLINE_DEPTH else "boundary")
            depth -= inline and not entered


def _start_tag(node: LexborNode) -> str:
    attributes = (f' {name}="{escape(value or "", quotes=True)}"' for name, value in node.attributes.items())
    return f"<{node.tag}{''.join(attributes)}>"


def _verbatim(node: LexborNode) -> str:
    """An element as it is. Where reading drops a first line feed, it is written twice."""
    raw, tag = node.html or "", _start_tag(node)
    first = node.first_child if node.tag in ("pre", "textarea") else None
    if first is not None and first.is_text_node and (first.text_content or "").startswith("\n"):
        return f"{tag}\n{raw.removeprefix(tag)}"
    return raw
