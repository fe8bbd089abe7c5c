"""The page on narrow and dark screens, for those who want no motion, and without a mouse."""

from __future__ import annotations

from browser import Browser
from pages import CHOICES, OTHER, TEXT, WORDS, picture, refine, translate


def test_narrow_and_dark_screens_and_reduced_motion(page: Browser) -> None:
    translate(page, f"{TEXT} {OTHER} https://example.org/{'a' * 60}")
    refine(page)
    for width, dark in ((360, False), (360, True), (320, False), (1180, True)):
        page.window(width, 844, dark, calm=True)
        page.wait("document.querySelectorAll('#drawing .flow').length > 20")
        assert page.run("document.documentElement.scrollWidth") <= width
        ink, paper = (page.run(f"getComputedStyle(document.body).{name}") for name in ("color", "backgroundColor"))
        assert contrast(ink, paper) > 7
        for quiet in (".masthead p", "#count", "#usage", "#clear", "#types", ".alarm", "summary", ".explained"):
            color = page.run(f"getComputedStyle(document.querySelector({quiet!r})).color")
            assert contrast(color, paper) > 4.5, quiet
        assert page.run("document.getAnimations().length") == 0
        picture(page, f"{width}{'-dark' if dark else ''}")
        page.click(f"{WORDS}[1]")
        page.wait(f"{CHOICES}.length > 0")
        assert page.run("document.documentElement.scrollWidth") <= width
        assert page.run("(({ left, right }) => left >= 0 && right <= innerWidth)(choices.getBoundingClientRect())")
        page.press("Escape")


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, as WCAG has it."""

    def light(colour: str) -> float:
        channels = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, bright = sorted((light(one), light(other)))
    return (bright + 0.05) / (dark + 0.05)


def test_every_control_has_a_name_is_reached_by_tab_and_shows_the_focus(page: Browser) -> None:
    translate(page, TEXT)
    refine(page)
    page.wait("document.querySelectorAll('#drawing .flow').length > 20")
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    roles = {"textbox", "slider", "button", "radio", "combobox", "link", "image", "group", "DisclosureTriangle"}
    named = [node for node in tree if node.get("role", {}).get("value") in roles and not node["ignored"]]
    assert {node["role"]["value"] for node in named} >= roles - {"group", "DisclosureTriangle"}
    assert [node for node in named if not node["name"]["value"] and node["role"]["value"] != "group"] == []
    page.run("document.getElementById('swap').focus({ focusVisible: true })")
    reached: list[str] = []
    node = "document.activeElement"
    while page.run(f"{node} !== document.body") and len(reached) < 30:
        reached.append(page.run(f"{node}.id || {node}.name || {node}.className || {node}.localName"))
        marked = "getComputedStyle(document.activeElement).outlineStyle !== 'none'"
        within = "getComputedStyle(document.activeElement.closest('.sheet, label') ?? document.body)"
        shown = f"{marked} || {within}.boxShadow !== 'none' || {within}.outlineStyle !== 'none'"
        assert page.run(shown), reached
        page.press("Tab")
    order = ["swap", "text", "clear", "word", "copy", "choose-file", "summary", "method", "steps", "replay", "token"]
    places = [reached.index(name) for name in order]
    assert places == sorted(places), reached
