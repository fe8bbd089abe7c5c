"""The page in a real browser: typing, sentences, copying, languages and limits."""

from __future__ import annotations

import httpx
from browser import Browser
from pages import (
    CHOICES,
    FRESH,
    OTHER,
    TEXT,
    TRACED,
    TRANSLATION,
    WORDS,
    answer,
    id_,
    picture,
    refine,
    text,
    translate,
    write,
)
from process import Running, Start

from latentmt.translator import Translator

LINKED = "[...document.querySelectorAll('.sentence.linked')].map((one) => one.textContent)"


def test_typing_translates_as_the_api_does_by_default(page: Browser, running: Running, translator: Translator) -> None:
    assert translate(page, TEXT) == translator.translate(TEXT)
    assert httpx.post(f"{running.address}/translate", json={"q": TEXT}).json() == {
        "translatedText": translator.translate(TEXT)
    }
    content = f"  {TEXT} 😀 {OTHER}\n\n𝔘nd {TEXT}\n"
    assert translate(page, content) == translator.translate(content)
    assert page.run("document.querySelector('#mirror').textContent") == f"{content}\u200b"
    response = httpx.post(f"{running.address}/translate", json={"q": content, "alignment": True}).json()
    for place, whole, side in (("mirror", content, "source"), ("translation", response["translatedText"], "target")):
        sentences = page.run(f"[...document.querySelectorAll('#{place} .sentence')].map((one) => one.textContent)")
        assert sentences == [whole[slice(*pair[side])] for pair in response["sentences"]]
        assert len(sentences) > 1
    assert not any(request.endswith("/trace") for request in page.requests)
    picture(page, "light")


def test_no_option_is_sent_with_a_text(page: Browser) -> None:
    page.run(answer())
    translate(page, TEXT)
    (sent,) = page.run("sent.filter(([path]) => path === 'translate').map(([, body]) => body)")
    assert sent == {"q": TEXT, "source": "de", "target": "en", "confidence": True, "alignment": True, "api_key": ""}


def test_what_is_old_is_dimmed_until_there_is_something_new(page: Browser) -> None:
    before = translate(page, TEXT)
    refine(page)
    page.run("window.trusted = window.fetch; window.fetch = () => new Promise(() => {}); 0")
    write(page, OTHER)
    for name in ("translation", "trace"):
        page.wait(f"getComputedStyle({id_(name)}).opacity < 0.6")
    assert page.run(TRANSLATION) == before
    assert page.run(f"{id_('copy')}.disabled") is True
    page.run("window.fetch = trusted; 0")
    translate(page, f"{OTHER} ")
    assert page.run(f"{id_('copy')}.disabled") is False
    page.wait(TRACED)
    for name in ("translation", "trace"):
        page.wait(f"getComputedStyle({id_(name)}).opacity === '1'")


def test_sentences_are_linked_by_mouse_and_keyboard(page: Browser) -> None:
    content = f"{TEXT} {OTHER}"
    translate(page, content)
    first, second = page.run("[...document.querySelectorAll('#translation .sentence')].map((one) => one.textContent)")
    page.hover("document.querySelectorAll('#translation .sentence')[1]")
    assert page.run(LINKED) == [OTHER, second]
    page.hover("document.querySelectorAll('#mirror .sentence')[0]")
    assert page.run(LINKED) == [TEXT, first]
    page.hover("document.querySelector('h1')")
    page.run(f"{id_('text')}.focus(); {id_('text')}.setSelectionRange(2, 2)")
    page.wait(f"{LINKED}[0] === {TEXT!r}")
    page.run(f"{id_('text')}.setSelectionRange({len(content)}, {len(content)})")
    page.wait(f"{LINKED}[0] === {OTHER!r}")
    page.run(f"{WORDS}[0].focus()")
    assert page.run(LINKED) == [TEXT, first]
    page.press("ArrowDown")
    assert page.run(LINKED) == [OTHER, second]
    page.run("document.activeElement.blur()")
    assert page.run(LINKED) == []
    page.hover("document.querySelectorAll('#mirror .sentence')[1]")
    picture(page, "linked")


def test_the_text_lies_on_its_mirror(page: Browser) -> None:
    """Otherwise another sentence than the one that is pointed at would be linked."""
    translate(page, f"{TEXT} {OTHER} " * 12)
    for width in (1180, 360):
        page.window(width, 900)
        for name in ("clientWidth", "scrollHeight"):
            assert page.run(f"{id_('text')}.{name}") == page.run(f"{id_('mirror')}.{name}")
        box = "(({ left, top, width }) => [left, top, width].join())"
        assert page.run(f"{box}({id_('text')}.getBoundingClientRect())") == page.run(
            f"{box}({id_('mirror')}.getBoundingClientRect())"
        )
        assert page.run(f"{id_('text')}.scrollHeight <= {id_('text')}.clientHeight + 1")


def test_translations_are_text_whatever_they_contain(page: Browser) -> None:
    evil = "<img src=y onerror=hit()> <script>hit()</script>"
    response = {"translatedText": evil, "alternatives": [f"{evil} & <b>b</b>"], "warning": evil}
    spans = [{"source": [0, len(TEXT)], "target": [0, len(evil)]}]
    page.run("window.hit = () => { throw 'hit' }; 0")
    page.run(answer(translate={**response, "sentences": spans}))
    assert translate(page, TEXT) == evil
    page.click(f"{WORDS}[0]")
    page.wait(f"{CHOICES}.length === 1")
    assert page.run(f"{CHOICES}[0].textContent") == f"{evil} & <b>b</b>"
    page.click(f"{CHOICES}[0]")
    page.wait(f"{TRANSLATION} === {CHOICES}[0].textContent")
    assert page.run(text("hint")) == evil
    assert page.run("document.querySelectorAll('img, main script, main b:not(#choices b)').length") == 0


def test_copy_says_so(page: Browser) -> None:
    page.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    copied = translate(page, TEXT)
    assert page.run(f"{id_('copy')}.hidden") is False
    page.click(id_("copy"))
    page.wait(f"{text('copy')} === 'Copied'")
    assert page.run(text("announced")) == "The translation was copied."
    assert page.run("navigator.clipboard.readText()") == copied
    page.wait(f"{text('copy')} === 'Copy'")
    page.run("navigator.clipboard.writeText('x')")
    page.run("Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true }); 0")
    page.click(id_("copy"))  # as where the page has no TLS
    page.wait(f"{text('copy')} === 'Copied'")
    assert page.run("document.activeElement.id") == "copy"
    page.run("delete navigator.clipboard; 0")
    assert page.run("navigator.clipboard.readText()") == copied


def test_clear_empties_everything(page: Browser) -> None:
    translate(page, TEXT)
    refine(page)
    page.click(id_("clear"))
    assert page.run(f"{id_('text')}.value + {TRANSLATION}") == ""
    assert page.run("document.activeElement.id") == "text"
    hidden = page.run("['clear', 'copy', 'usage', 'refinement'].map((id) => document.getElementById(id).hidden)")
    assert hidden == [True] * 4
    assert page.run(text("count")) == "0 of 10,000 characters"


def test_examples_say_what_they_show(page: Browser) -> None:
    names = page.run("[...document.querySelectorAll('#examples button')].map((one) => one.textContent)")
    assert names == ["Everyday", "Parliament", "A document’s address stays as it is"]
    page.click("[...document.querySelectorAll('#examples button')].at(-1)")
    page.wait(f"{FRESH} && {TRANSLATION}.includes('https://example.org/hilfe/anleitung.pdf')")
    assert page.run(f"{id_('examples')}.hidden") is False  # another one may be looked at
    translate(page, TEXT)
    assert page.run(f"{id_('examples')}.hidden") is True


def test_languages_are_swapped_if_the_server_has_both_directions(page: Browser, running: Running) -> None:
    translate(page, TEXT)
    page.run(answer())
    page.click(id_("swap"))
    reason = "This server does not translate English to German."
    assert page.run(f"{id_('swap')}.getAttribute('aria-disabled')") == "true"
    assert page.run(text("one-way")) == reason
    page.wait("getComputedStyle(document.getElementById('one-way')).visibility === 'visible'")
    assert page.run(text("source-name")) == "German"
    assert page.run("sent") == []
    picture(page, "one-way")
    both = [{"code": "de", "name": "German", "targets": ["en"]}, {"code": "en", "name": "English", "targets": ["de"]}]
    with page.prepared(answer(languages=both, translate={"translatedText": "Hier, bitte."})):
        page.open(running.address)
        page.wait("document.querySelectorAll('#examples button').length > 0")
        translate(page, TEXT)
        page.click(id_("swap"))
        page.wait("sent.length === 2")
    assert page.run("sent[1][1]") == {
        "q": "Hier, bitte.",
        "source": "en",
        "target": "de",
        "confidence": True,
        "alignment": True,
        "api_key": "",
    }
    assert page.run(f"[{text('source-name')}, {text('target-name')}].join()") == "English,German"
    assert page.run(f"[{id_('text')}.lang, {id_('translation')}.lang].join()") == "en,de"
    assert page.run(text("announced")) == "English to German"


def test_another_language_is_hinted_at(page: Browser) -> None:
    translate(page, "The small sentence is here, and another one is over there with many books.")
    page.wait(f"{text('hint')} === 'This text seems to be English, not German.'")
    assert page.run(f"{id_('hint')}.getAttribute('role')") == "status"
    picture(page, "wrong-language")
    translate(page, TEXT)
    assert page.run(text("hint")) == ""


def test_limits_are_visible_and_a_text_over_them_is_kept(browser: Browser, start: Start) -> None:
    browser.window(1180, 900)
    with start("--max-characters", 60) as server:
        browser.open(server.address)
        browser.wait("document.querySelectorAll('#examples button').length > 0")
        translate(browser, TEXT)
        assert browser.run(text("count")) == "28 of 60 characters"
        over = "𝔘" * 59 + "nd"
        browser.run(answer())
        write(browser, over)
        message = "One character too many. Shorten the text, or translate it as a document."
        browser.wait(f"{text('hint')} === {message!r}")
        assert browser.run(f"{id_('text')}.value") == over
        assert browser.run(f"{id_('text')}.getAttribute('aria-invalid')") == "true"
        picture(browser, "limit")
        browser.run("new Promise((done) => setTimeout(done, 500))")
        translate(browser, over[:-1])
        assert browser.run("sent.map(([, body]) => body.q)") == [over[:-1]]
        assert browser.run(f"{text('hint')} + {text('status')}") == ""


def test_what_is_below_a_long_text_stays_in_sight(page: Browser) -> None:
    page.window(360, 700)
    translate(page, f"{TEXT}\n" * 60)
    page.run("scrollTo(0, 400)")
    bottom, height = page.run("[document.getElementById('clear').getBoundingClientRect().bottom, innerHeight]")
    assert page.run("document.getElementById('text').clientHeight") > height
    assert 0 < bottom <= height


def test_a_text_without_sentences_is_translated(page: Browser) -> None:
    assert translate(page, "https://example.org/") == "https://example.org/"
    write(page, " \n ")
    page.wait(f"{TRANSLATION} === '' && {FRESH}")


def test_docs_page_describes_every_path(browser: Browser, running: Running) -> None:
    browser.window(1180, 900)
    browser.errors.clear()
    browser.open(f"{running.address}/docs")
    paths = httpx.get(f"{running.address}/openapi.json").json()["paths"]
    operations = sum(map(len, paths.values()))
    browser.wait(f"document.querySelectorAll('article').length === {operations}")
    assert "curl" in browser.run("document.querySelector('article pre').textContent")
    assert browser.errors == []
    picture(browser, "docs")
