"""Documents on the page: chosen or dropped, translated, downloaded; and what cannot be translated."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest
from browser import Browser
from pages import OTHER, TEXT, id_, picture, text, translate
from process import Running, Start

from latentmt.translator import Translator

STATUS = text("file-status")
DONE = f"!{id_('download')}.hidden"


@pytest.fixture
def letter(tmp_path: Path) -> Path:
    path = tmp_path / "Brief & Co.txt"
    path.write_text(f"{TEXT}\n\n{OTHER}\n")
    return path


def test_a_document_is_chosen_translated_and_downloaded(
    page: Browser, translator: Translator, letter: Path, tmp_path: Path
) -> None:
    expected = f"{translator.translate(TEXT)}\n\n{translator.translate(OTHER)}\n"
    types = httpx.get(f"{page.run('location.origin')}/frontend/settings").json()["supportedFilesFormat"]
    assert page.run(f"{id_('file')}.accept") == ",".join(types)
    page.choose_file(id_("file"), letter)
    page.wait(DONE)
    assert page.run(STATUS).startswith("Translated.")
    assert page.run(text("download")) == "Download Brief & Co.en.txt"
    assert page.run(f"{id_('working')}.hidden && !{id_('choose-file')}.disabled") is True
    picture(page, "document")
    page.save_to(tmp_path)
    for _ in range(2):  # as often as one likes
        page.click(id_("download"))
        result = wait_for(tmp_path / "Brief & Co.en.txt")
        assert result.read_text() == expected
        result.unlink()
    assert page.run("location.pathname") == "/"


def wait_for(path: Path) -> Path:
    until = time.monotonic() + 20
    while not path.exists() or not path.stat().st_size:
        assert time.monotonic() < until, list(path.parent.iterdir())
        time.sleep(0.05)
    return path


def test_a_document_is_dropped_anywhere(page: Browser, letter: Path) -> None:
    translate(page, TEXT)
    page.drag(id_("text"), letter, drop=False)
    assert page.run("document.body.classList.contains('dropping')") is True
    picture(page, "dropping")
    page.drag(id_("text"), letter)
    page.wait(DONE)
    assert page.run("document.body.classList.contains('dropping')") is False
    assert page.run(f"{id_('text')}.value") == TEXT


def test_progress_is_shown_and_a_document_can_be_cancelled(page: Browser, letter: Path) -> None:
    page.run(
        """
        (() => {
          const send = XMLHttpRequest.prototype.send;
          XMLHttpRequest.prototype.send = function () {
            window.asked = this;
            this.upload.onprogress({ loaded: 30, total: 40 });
          };
          window.go = () => { XMLHttpRequest.prototype.send = send };
        })()
        """
    )
    page.run(f"{id_('choose-file')}.focus()")
    page.choose_file(id_("file"), letter)
    page.wait(f"{STATUS} === 'Sending Brief & Co.txt …'")
    assert page.run(f"{id_('progress')}.position") == 0.75
    assert page.run("document.activeElement.id") == "cancel"
    page.run("asked.upload.onload()")
    assert page.run(STATUS) == "Translating Brief & Co.txt …"
    assert page.run(f"{id_('progress')}.position") == -1
    picture(page, "working")
    page.drag(id_("text"), letter)
    assert page.run(STATUS).startswith("Wait until this document is done")
    page.run("asked.abort = () => asked.onabort()")  # since it was never sent
    page.click(id_("cancel"))
    page.wait(f"{STATUS} === 'Brief & Co.txt was cancelled.'")
    assert page.run("document.activeElement.id") == "choose-file"
    page.run("go()")
    page.choose_file(id_("file"), letter)
    page.wait(DONE)


def test_a_cancelled_document_is_no_longer_translated(page: Browser, running: Running, tmp_path: Path) -> None:
    long = tmp_path / "lang.txt"
    long.write_text("\n\n".join(f"{OTHER} {number}" for number in range(9000)))
    page.choose_file(id_("file"), long)
    page.wait(f"{STATUS}.startsWith('Translating')")
    page.wait(f"{text('elapsed')} !== ''")
    page.click(id_("cancel"))
    page.wait(f"{STATUS} === 'lang.txt was cancelled.'")
    until = time.monotonic() + 20
    while 'endpoint="/translate_file",status="499"' not in httpx.get(f"{running.address}/metrics").text:
        assert time.monotonic() < until
        time.sleep(0.1)


def test_what_cannot_be_translated_is_said_in_one_line(page: Browser, letter: Path, tmp_path: Path) -> None:
    (tmp_path / "bild.png").write_bytes(b"x")
    (tmp_path / "kaputt.docx").write_bytes(b"x")
    (tmp_path / "gross.txt").write_bytes(b"x" * 10_000_001)
    for names, message in (
        (["bild.png"], "bild.png: documents of this type cannot be translated."),
        (["gross.txt"], "gross.txt has 10 MB. The limit is 10 MB."),
        (["bild.png", letter.name], "One document at a time, please."),
        (["kaputt.docx"], "kaputt.docx: "),
    ):
        page.drag("document.body", *(tmp_path / name for name in names))
        page.wait(f"{STATUS}.startsWith({message!r})")
        assert page.run(f"{id_('file-status')}.classList.contains('alarm') && {id_('download')}.hidden") is True
        assert "\n" not in page.run(STATUS)
    picture(page, "document-error")
    page.errors.clear()  # the browser notes the server's 400


def test_a_key_is_sent_with_a_document(browser: Browser, start: Start, letter: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    with start("--api-keys", keys) as server:
        browser.window(1180, 900)
        browser.open(server.address)
        browser.wait(f"!{id_('documents')}.hidden")
        browser.choose_file(id_("file"), letter)
        browser.wait(f"{STATUS}.includes('wants an API key')")
        browser.run(f"{id_('key')}.focus()")
        browser.type("secret")
        browser.choose_file(id_("file"), letter)
        browser.wait(DONE)
