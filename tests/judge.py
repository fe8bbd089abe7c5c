"""Reads HTML with another parser than the server's, and tells what elements it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from justhtml import JustHTML
from justhtml.parser import FragmentContext

Element = tuple[str, ...]
"""Namespace, name, the attributes in order, and the text of a script or style."""

READINGS = [(container, scripting) for container in ("div", None) for scripting in (False, True)]
"""Where a page may put HTML (None: it is a page itself), and whether scripts are on."""


def walk(source: str, container: str | None, scripting: bool) -> Iterator[tuple[Any, tuple[Element, ...]]]:
    """Every element of some HTML within an element, or of a page; and the elements around it."""
    context = None if container is None else FragmentContext(container)
    tree = JustHTML(source, sanitize=False, fragment_context=context, scripting_enabled=scripting).root
    stack: list[tuple[Any, tuple[Element, ...]]] = [(tree, ())]
    while stack:
        node, path = stack.pop()
        if not node.name.startswith(("#", "!", "?")):
            yield node, path
            path = (*path, describe(node))
        inside = [*(node.children or ()), *filter(None, [getattr(node, "template_content", None)])]
        stack += [(child, path) for child in reversed(inside)]


def describe(node: Any) -> Element:
    code = [child.data or "" for child in node.children] if node.name in ("script", "style") else []
    attributes = (f"{name}={value or ''}" for name, value in sorted(node.attrs.items()))
    return (node.namespace, node.name, *attributes, *code)


def contents(source: str, container: str | None, scripting: bool) -> Counter[Element]:
    """The elements of some HTML, and each of their attributes."""
    found = Counter[Element]()
    for node, _ in walk(source, container, scripting):
        namespace, name, *others = describe(node)
        code = others[len(node.attrs) :]
        # A stray </p> or </br> is an element within a page, and none before it begins.
        found[(namespace, name, *code)] += bool(node.attrs) or name not in ("p", "br")
        found.update((namespace, name, attribute) for attribute in others[: len(node.attrs)])
    return found


def gained(source: str, result: str) -> Counter[Element]:
    """The elements and attributes that a result has and its source has not, in whatever way both are read."""
    return sum(
        (contents(result, *reading) - contents(source, *reading) for reading in READINGS), start=Counter[Element]()
    )
