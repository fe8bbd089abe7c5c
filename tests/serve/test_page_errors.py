"""Errors on the page: shown in one line, and tried again where that may help."""

from __future__ import annotations

from pathlib import Path

from browser import Browser
from pages import FRESH, ROWS, TEXT, TRANSLATION, id_, refine, text, translate, write
from process import Start


def test_a_refused_text_is_sent_again(page: Browser) -> None:
    page.run(
        """
        window.asked = 0;
        window.trusted = window.fetch;
        window.fetch = (path, options) => {
          if (path !== "translate" || asked++) return trusted(path, options);
          return Promise.resolve(new Response('{"error": "busy"}', { status: 429, headers: { "Retry-After": "1" } }));
        };
        0
        """
    )
    write(page, TEXT)
    page.wait(f"{text('status')}.includes('Trying again in 1 s')")
    page.wait(f"{FRESH} && {TRANSLATION} !== '' && {text('status')} === ''")
    assert page.run("asked") == 2


def test_an_answer_that_is_not_the_servers_is_an_error_like_no_answer(page: Browser) -> None:
    page.run(
        """
        window.trusted = window.fetch;
        window.fetch = (path, options) => {
          const { q } = options?.body ? JSON.parse(options.body) : {};
          if (!/^({.*}|null)$/.test(q)) return trusted(path, options);
          return Promise.resolve(new Response(q, { status: 502 }));
        };
        0
        """
    )
    for body in ("{}", '{"message": "Bad Gateway"}', "null", '{"error": ""}', '{"error": {"code": 502}}'):
        write(page, body)
        page.wait(f"{text('status')} === 'The server cannot be reached. Trying again …'")
        assert page.errors == []
        write(page, " ")
        page.wait(f"{text('status')} === ''")
    translate(page, TEXT)


def test_errors_are_shown_and_retried(browser: Browser, start: Start, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    browser.window(1180, 900)
    status = text("status")
    with start("--api-keys", keys, "--max-sentences", 2) as server:
        browser.open(server.address)
        browser.wait("document.querySelectorAll('#examples button').length > 0")
        assert browser.run(f"{id_('key-field')}.hidden") is False
        write(browser, TEXT)
        assert "wants an API key" in browser.wait(status)
        browser.run(f"{id_('key')}.focus()")
        browser.type("secret")
        browser.wait(f"{FRESH} && {TRANSLATION} !== '' && {status} === ''")
        refine(browser)
        assert browser.run(ROWS) > 1
        write(browser, "Eins. Zwei. Drei. Vier.")
        assert "this server allows 2" in browser.wait(status)
        translate(browser, TEXT)
        browser.wait(f"{status} === ''")
    write(browser, f"{TEXT} Ja.")
    assert "The server cannot be reached. Trying again" in browser.wait(status)
