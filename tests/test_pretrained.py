"""The installed model: exact translations, so that no change of weights or code goes unnoticed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from latentmt.documents.markup import Document
from latentmt.installed import PRETRAINED
from latentmt.options import DecodingOptions
from latentmt.translator import Translator

FOLDER = PRETRAINED / "deen"

SENTENCES = {
    "Ich habe gestern ein neues Fahrrad gekauft.": "I bought a new bicycle yesterday.",
    "Die Sitzung wird um neun Uhr eröffnet.": "The meeting will be opened at nine o'clock.",
    "Meine Schwester wohnt seit drei Jahren in Berlin.": "My sister has lived in Berlin for three years.",
    "Er hat mir nicht gesagt, warum er so spät nach Hause gekommen ist.": "He didn't tell me why he came home so late.",
    "Wenn du müde bist, solltest du ins Bett gehen.": "If you're tired, you should go to bed.",
    "Wo kann ich hier eine Fahrkarte kaufen?": "Where can I buy a ticket here?",
    "Wir müssen die Rechte der Arbeitnehmer in der Europäischen Union schützen.": (
        "We must protect workers’ rights in the European Union."
    ),
    "Das Parlament hat den Vorschlag der Kommission mit großer Mehrheit angenommen.": (
        "Parliament adopted the Commission’s proposal by a large majority."
    ),
    "Kannst du mir bitte das Salz geben?": "Can you pass me the salt, please?",
    "Der Hund schläft unter dem Tisch.": "The dog is sleeping under the table.",
    "Wir sollten den Bericht des Ausschusses unterstützen.": "We should support the committee’s report.",
    "Es gibt keine einfache Lösung für dieses Problem.": "There is no easy solution to this problem.",
    "Sie liest jeden Abend ein Buch.": "She reads a book every evening.",
    "Die Mitgliedstaaten müssen mehr Verantwortung übernehmen.": "The Member States must take more responsibility.",
    "Wie viel kostet diese Jacke?": "How much is this jacket?",
    "Das ist das beste Buch, das ich je gelesen habe.": "This is the best book I've ever read.",
    "Der Klimawandel ist eine der größten Herausforderungen unserer Zeit.": (
        "Climate change is one of the greatest challenges of our time."
    ),
    "Morgen fahren wir nach Hamburg.": "We'll go to Hamburg tomorrow.",
    "Die Abstimmung findet morgen um 12 Uhr statt.": "The vote will take place tomorrow at 12 p.m.",
    "Guten Morgen! Wie geht es dir heute?": "Good morning. How are you today?",
}

REFINED = {
    "Ich fragte mich, warum mich die Leute anstarrten.": (
        "I wondered why people were staring at.",
        "I wondered why people were staring at me.",
    ),
    "Ich glaube, es wird heute Nachmittag nicht regnen.": (
        "I think it won's rain this afternoon.",
        "I think it won't rain this afternoon.",
    ),
    "Wir machen keine Fehler.": (
        "We don' not make mistakes.",
        "We don't make mistakes.",
    ),
}
"""Sentences before and after one step of delta inference."""


@pytest.fixture(scope="module", params=["onnx", "torch"])
def deen(request: pytest.FixtureRequest) -> Translator:
    return Translator.load("deen", "cpu", engine=request.param)


@pytest.fixture(scope="module")
def exact() -> Translator:
    """In single precision, so that other processors write the same."""
    return Translator.load("deen", "cpu", engine="torch")


def test_twenty_translations_are_unchanged(exact: Translator) -> None:
    assert len(SENTENCES) == 20
    assert dict(zip(SENTENCES, exact.translate(list(SENTENCES)), strict=True)) == SENTENCES


def test_eight_bits_change_little() -> None:
    """Which words they change depends on the processor's instructions."""
    found = Translator.load("deen", "cpu", engine="onnx").translate(list(SENTENCES))
    assert sum(map(str.__eq__, found, SENTENCES.values())) >= 18


def test_one_step_corrects_these_translations(exact: Translator) -> None:
    deen = exact
    before, after = (deen.translate(list(REFINED), method="delta", steps=steps) for steps in (0, 1))
    assert dict(zip(REFINED, zip(before, after, strict=True), strict=True)) == REFINED


def test_default_options_are_used_unless_others_are_given(deen: Translator) -> None:
    assert deen.options() == DecodingOptions("delta", 1, length_bias=0.1, lm_weight=0.27)
    assert deen.options(seed=3) == DecodingOptions("delta", 1, length_bias=0.1, lm_weight=0.27, seed=3)
    assert deen.options(lm_weight=0.0) == DecodingOptions("delta", 1, length_bias=0.1)
    assert deen.options(method="delta") == DecodingOptions("delta", 1)
    assert deen.methods == ["prior", "delta"]


def test_double_letters_are_kept(deen: Translator) -> None:
    found = deen.translate(["HALLO WELT", "Borussia Dortmund hat gewonnen.", "C++ ist schwer..."])
    assert found[0] == "HALLO WELT"
    assert "Borussia" in found[1]
    assert "C++" in found[2]


def test_repeated_words_are_removed(exact: Translator) -> None:
    deen = exact
    text = "Ich habe nicht gelogen."
    stuttered, read = (deen.translate(text, method="prior", steps=0, remove_repeats=way) for way in ("none", "words"))
    assert stuttered == "I didn't lie lie."
    assert read == "I didn't lie."


def test_a_candidate_with_text_is_preferred_to_a_blank_one(deen: Translator) -> None:
    assert deen.translate("!", method="delta", lengths=5, rerank="elbo") == "!"
    assert deen.translate("!", method="delta", lengths=5, rerank="elbo", verbatim=False) == "!"
    for method in ("prior", "delta"):
        for weight in (0.0, 0.27):
            assert all(deen.translate(["!", "?", "...", "Ja"], method=method, verbatim=False, lm_weight=weight))


def test_incomplete_characters_are_not_emitted(exact: Translator) -> None:
    deen = exact
    options = deen.options(method="delta", lengths=5, rerank="elbo", verbatim=False)
    texts = ["Gyöngyösi sprach mit Herrn Łukaszenko", "Guten Morgen 🌞 und gute Nacht 🌙", "Danke 👍🏽"]
    done = deen.translations(texts, options, alternatives=4)
    found = [text for one in done for text in (one.text, *one.alternatives)]
    assert "Gyöngyösi spoke to Mr Łukaszenko" in found  # it used to be "Ł\ufffdukaszenko"
    assert not any("\ufffd" in text for text in found)


CORES = """
import os, torch
from latentmt.translator import Translator

running = len(os.listdir("/proc/self/task"))
print(torch.get_num_threads())
for threads in (None, 2, None):
    translator = Translator.load("deen", threads=threads, engine="torch")
    translator.translate("Wo kann ich hier eine Fahrkarte kaufen?")
    print(torch.get_num_threads(), translator.backend.workers, len(os.listdir("/proc/self/task")) - running)
"""


def test_default_threads_are_one_per_batch_and_batches_use_all_cores() -> None:
    """Threads that share a batch spin while they wait for each other, and on a busy machine they wait long."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-c", CORES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    (cores,), *found = ([int(number) for number in line.split()] for line in done.stdout.splitlines())
    assert found[0] == [1, cores, 0]
    assert found[1] == [2, 1, 1]
    assert found[2][:2] == [1, cores]


WITHOUT_TORCH = """
import sys

for name in ("torch", "onnx", "sacrebleu", "matplotlib", "fastapi", "py3langid"):
    sys.modules[name] = None  # as if it were not installed
from latentmt.cli import main

main()
"""


def without_torch(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command line as it is where only the package was installed, without extras."""
    command = [sys.executable, "-c", WITHOUT_TORCH, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_everything_a_user_of_the_model_needs_works_without_torch(tmp_path: Path) -> None:
    source, expected = next(iter(SENTENCES.items()))
    assert without_torch("translate", source).stdout == expected + "\n"
    assert without_torch("translate", "--method", "prior", source).stdout.strip()
    assert without_torch("trace", source).stdout.splitlines()[-2].endswith(expected)
    assert "de → en" in without_torch("models").stdout
    assert without_torch("inspect", "deen").returncode == 0
    for command, needed in (
        (("translate", "--device", "cuda", source), "torch is needed: pip install 'latentmt[torch]'"),
        (("translate", "--engine", "torch", source), "torch is needed: pip install 'latentmt[torch]'"),
        (("export", FOLDER, tmp_path / "out"), "needs torch: pip install 'latentmt[train]'"),
        (("serve",), "needs fastapi: pip install 'latentmt[serve]'"),
    ):
        failed = without_torch(*command)
        assert (failed.returncode, failed.stderr.count("\n")) == (1, 1), failed.stderr
        assert needed in failed.stderr


THREADS = """
import os
from latentmt.translator import Translator

running = len(os.listdir("/proc/self/task"))
for threads in (None, 2):
    translator = Translator.load("deen", threads=threads, engine="onnx")
    translator.translate("Wo kann ich hier eine Fahrkarte kaufen?")
    info = translator.backend.info
    print(info["threads"], info["workers"], len(os.listdir("/proc/self/task")) - running)
"""


def test_a_sentence_has_one_thread_and_sentences_use_all_cores() -> None:
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=True)
    default, two = ([int(number) for number in line.split()] for line in done.stdout.splitlines())
    assert default[:2] == [1, len(os.sched_getaffinity(0))]
    assert two[:2] == [2, 1]
    assert two[2] > default[2]


def test_the_model_fits_its_size_limit() -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 48e6
    assert max(path.stat().st_size for path in files) <= 15e6
    assert {"MODEL_CARD.md", "options.yaml"} <= {path.name for path in FOLDER.iterdir()}


def test_the_first_command_translates_from_any_folder(tmp_path: Path) -> None:
    source, expected = next(iter(SENTENCES.items()))
    command = [sys.executable, "-m", "latentmt", "translate", source]
    # The hook that checks shapes in tests is this process's alone; a user has none.
    done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (expected + "\n", "")


def test_verbatim_spans_are_unchanged(deen: Translator) -> None:
    assert deen.translate("Schreiben Sie bitte an max.muster@web.de. 😀") == "Please write to max.muster@web.de. 😀"
    for span in (
        "https://www.beispiel.de/pfad?x=1",
        "+49 30 123456",
        "`a_b`",
        "/usr/local/bin",
        "{name}",
        "%s",
        "<x/>",
        "DE89 3704 0044 0532 0130 00",
        "👍🏽",
    ):
        assert deen.translate(f"Ich habe {span} gestern gelesen.").count(span) == 1
    assert deen.translate("Klicken Sie auf <b>Hilfe</b>.").count("<b>") == 1
    assert deen.translate("12:30 – 14:00") == "12:30 – 14:00"


def translated_html(translator: Translator, source: str) -> str:
    document = Document(source)
    return document.render(translator.translations(document.texts, alignment=True))


@pytest.mark.parametrize(
    "source",
    [
        "<td><b>42</b></td>",
        '<li><a href="/a">2023</a></li>',
        '<p><a href="https://a.de">www.a.de</a></p>',
        "<p><b>😀</b></p>",
    ],
)
def test_html_of_verbatim_spans_is_unchanged(deen: Translator, source: str) -> None:
    assert translated_html(deen, source) == source


def test_tags_stay_around_verbatim_spans(deen: Translator) -> None:
    assert "<b>12:30</b>" in translated_html(deen, "<p>Guten Morgen. <b>12:30</b></p>")
    assert "<b>😀</b>" in translated_html(deen, "<p><b>😀</b> Hallo Welt</p>")
    assert "<b>www.a.de</b>" in translated_html(deen, "<p>Ich habe <b>www.a.de</b> gestern gelesen.</p>")


def test_only_white_space_and_emoji(deen: Translator) -> None:
    assert deen.translate("😀 \u200b").strip() == "😀"


def test_numbers_keep_their_digits_and_are_written_as_in_english(deen: Translator) -> None:
    assert deen.translate("Der Preis beträgt 1.500 Euro.") == "The price is EUR 1,500."
    assert "3.14159" in deen.translate("Die Zahl 3,14159 ist pi.")
    assert "10,000" in deen.translate("Es kostet 10.000 Euro.")
    assert {"24", "12", "2023"} <= set(deen.translate("Am 24.12.2023 treffen wir uns.").replace(".", " ").split())


def test_alternatives_begin_with_the_translation(deen: Translator) -> None:
    text = "Sie schulden mir {n} und 4.711,08 Euro, sagte www.a.de."
    (one,) = deen.translations([text], alternatives=1)
    found = [one.text, *one.alternatives]
    assert found[0] == deen.translate(text)
    assert all("{n}" in one and "www.a.de" in one and "4,711.08" in one for one in found)
