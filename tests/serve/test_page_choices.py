"""Other translations on the page: of a word, with the mouse and the keyboard."""

from __future__ import annotations

import httpx
from browser import Browser
from pages import CHOICES, OTHER, TEXT, TRANSLATION, WORDS, answer, id_, picture, text, translate
from process import Running

OPEN = "document.querySelector('#choices:popover-open') !== null"


def answers(server: Running, content: str) -> list[str]:
    """A sentence's translation and its alternatives, as the page asks for them."""
    response = httpx.post(f"{server.address}/translate", json={"q": content, "alternatives": 6}).json()
    return [response["translatedText"], *response["alternatives"]]


def test_a_word_has_other_translations_to_choose_from(page: Browser, running: Running) -> None:
    before = translate(page, f"{TEXT} {OTHER}")
    mine, rest = page.run("[...document.querySelectorAll('#translation .sentence')].map((one) => one.textContent)")
    page.click(f"{WORDS}[0]")
    page.wait(f"{CHOICES}.length > 0")
    offered = page.run(f"[...{CHOICES}].map((one) => one.textContent)")
    expected = {" ".join(one.split()) for one in answers(running, TEXT)} - {" ".join(mine.split())}
    assert set(offered) == expected
    assert len(offered) == len(expected) > 0
    picture(page, "choices")
    page.click(f"{CHOICES}[0]")
    page.wait(f"!({OPEN})")
    after = page.run(TRANSLATION)
    assert " ".join(after.split()) == f"{offered[0]} {' '.join(rest.split())}"
    assert page.run("document.activeElement.className") == "word"
    assert page.run(text("announced")) == page.run("document.querySelector('#translation .sentence').textContent")
    translate(page, f"{TEXT} {OTHER} Ja.")  # what was chosen is kept while its sentence is
    assert page.run(TRANSLATION).startswith(after)
    page.click(f"{WORDS}[0]")
    page.wait(f"{CHOICES}.length > 0")
    assert page.run(f"[...{CHOICES}].map((one) => one.textContent).includes({' '.join(mine.split())!r})")  # and back
    page.press("Escape")
    page.wait(f"!({OPEN})")
    page.click(id_("clear"))
    assert translate(page, f"{TEXT} {OTHER}") == before


def test_a_choice_is_for_one_of_two_equal_sentences(page: Browser) -> None:
    read = "[...document.querySelectorAll('#translation .sentence')].map((one) => one.textContent)"
    translate(page, f"{TEXT} {TEXT}")
    first, second = page.run(read)
    assert first == second
    page.click("document.querySelectorAll('#translation .sentence')[1].querySelector('.word')")
    page.wait(f"{CHOICES}.length > 0")
    chosen = page.run(f"{CHOICES}[0].textContent")
    page.click(f"{CHOICES}[0]")
    page.wait(f"!({OPEN})")
    for more in ("", " Ja.", f" {TEXT}"):
        translate(page, f"{TEXT} {TEXT}{more}")
        one, other, *rest = (" ".join(sentence.split()) for sentence in page.run(read))
        assert [one, other] == [" ".join(first.split()), chosen]
        assert chosen not in rest


def test_what_changes_the_word_comes_first(page: Browser) -> None:
    others = ["A large house is there.", "The little house is there.", "The house was there."]
    response = {"translatedText": "The small house is there.", "alternatives": others}
    spans = [{"source": [0, len(TEXT)], "target": [0, 25]}]
    page.run(answer(translate={**response, "sentences": spans}))
    translate(page, TEXT)
    page.click(f"{WORDS}[3]")
    page.wait(f"{CHOICES}.length === 3")
    assert page.run(f"[...{CHOICES}].map((one) => one.textContent)") == [others[2], *others[:2]]
    assert page.run(
        "document.querySelector('#choices h3').previousSibling === document.querySelector('#choices button')"
    )
    marked = page.run(
        f"[...{CHOICES}].map((one) => [...one.querySelectorAll('b')].map((part) => part.textContent).join())"
    )
    assert marked == ["was", "A,large", "little"]
    assert page.run(text("choices-status")) == ""
    page.press("Escape")
    page.click(f"{WORDS}[4]")
    page.wait(f"{text('choices-status')} === 'No other word was found for “there”.'")
    sent = page.run("sent.map(([, body]) => body).filter((body) => body.alternatives)")
    assert [body["q"] for body in sent] == [TEXT] * 2


def test_words_are_chosen_with_the_keyboard(page: Browser) -> None:
    translate(page, f"{TEXT} {OTHER}")
    page.run(f"{id_('text')}.focus()")
    for _ in range(9):
        page.press("Tab")
        if page.run("document.activeElement.className") == "word":
            break
    assert page.run("document.querySelectorAll('#translation [role=button]').length") == 1
    assert page.run(f"document.activeElement === {WORDS}[0]")
    page.press("ArrowRight")
    assert page.run(f"document.activeElement === {WORDS}[1]")
    assert page.run("document.activeElement.getAttribute('role')") == "button"
    page.press("End")
    assert page.run(f"document.activeElement === [...{WORDS}].at(-1)")
    page.press("Home")
    for key in ("Enter", " "):
        page.press(key)
        page.wait(f"{CHOICES}.length > 0 && document.activeElement === {CHOICES}[0]")
        page.press("ArrowDown")
        assert page.run(f"document.activeElement === {CHOICES}[1 % {CHOICES}.length]")
        page.press("Escape")
        page.wait(f"!({OPEN})")
        assert page.run(f"document.activeElement === {WORDS}[0]")
    page.press("Enter")
    page.wait(f"{CHOICES}.length > 0")
    chosen = page.run(f"{CHOICES}[0].textContent")
    page.press("Enter")
    page.wait(f"{TRANSLATION}.startsWith({chosen.split()[0]!r})")
    assert page.run("document.activeElement.className") == "word"
