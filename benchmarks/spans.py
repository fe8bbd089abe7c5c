"""What comes back verbatim: sentences with addresses, code, numbers … in them, translated with and without protection.

    python benchmarks/spans.py --src dev.de --sentences 500

Half of the sentences are made from templates, the other half are lines of the files with a span put behind a word. A
span counts if it is in the translation as often as in the source. A line with numbers counts if all its groups of
digits are in the translation; one that is spelt out ("five") or told otherwise ("2 p.m.") does not.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from latentmt.data.spans import find_spans
from latentmt.data.text import all_text, read_lines
from latentmt.measure.machine import Machine
from latentmt.translator import Translator

TEMPLATES = """Besuchen Sie {} für weitere Informationen.
Schreiben Sie bitte an {}, wenn Sie Fragen haben.
Die Datei {} wurde nicht gefunden.
Öffnen Sie {} und klicken Sie auf {}.
Der Befehl {} startet den Server neu.
Überweisen Sie den Betrag bis Freitag auf {}.
Rufen Sie uns morgen unter {} an.
Hallo {}, willkommen zurück!
Ersetzen Sie {} durch {} und starten Sie {} noch einmal.
Unter {} finden Sie die ganze Geschichte.
Ich habe {} gestern gelesen und {} vergessen.
{} ist nicht erreichbar.
Das Handbuch liegt in {} und ist auf Englisch.
Er schickte mir den Link {} und lachte.
Vielen Dank für deine Hilfe {}
{} Bis morgen!""".splitlines()

SPANS = {
    "address": ["https://www.beispiel.de/pfad?x=1&y=2", "www.stadt-koeln.de", "firma.de/kontakt", "http://a.io/b#c"],
    "e-mail": ["max.muster@web.de", "info+rechnung@firma.co.uk", "a@b.org"],
    "IBAN": ["DE89 3704 0044 0532 0130 00", "AT61 1904 3002 3457 3201"],
    "telephone": ["+49 30 1234567", "0221 / 4711-0815", "+43 (0) 1 5881234"],
    "emoji": ["😀", "👍🏽", "🇩🇪", "👩‍👩‍👧", "🎉🎉"],
    "code": ["`git commit -m x`", "print()", "max_length", "--no-restore", "ELEMENT_TYPE_I4"],
    "path": ["/usr/local/bin", r"C:\Temp\neu", "~/notizen/a.md", "bericht_2023.pdf", "$HOME/x"],
    "placeholder": ["{name}", "%s", "%1$s", "<x/>", "{{ wert }}", "%(count)d", "${id}"],
}


def made(rng: random.Random, lines: Sequence[str], count: int) -> list[tuple[str, list[tuple[str, str]]]]:
    """Sentences, each with the spans in it and their kinds."""
    sentences = []
    for number in range(count):
        if number % 2 or not lines:
            text = rng.choice(TEMPLATES)
        else:
            words = rng.choice(lines).split(" ")
            place = rng.randint(1, len(words))
            text = " ".join([*words[:place], "{}", *words[place:]])
        kinds = rng.sample(sorted(SPANS), text.count("{}"))
        spans = [(kind, rng.choice(SPANS[kind])) for kind in kinds]
        parts = text.split("{}")
        sentences.append(("".join(a + b for a, b in zip(parts, [*(s for _, s in spans), ""], strict=True)), spans))
    return sentences


def groups(text: str) -> set[str]:
    """What stands between a number's separators."""
    return set(re.findall(r"\d+", text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=None)
    parser.add_argument("--src", type=Path, nargs="*", default=[], help="files of source sentences")
    parser.add_argument("--sentences", type=int, default=500, help="of each kind, at least 1")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--show", type=int, default=0, help="translations to print")
    options = parser.parse_args()
    rng, translator = random.Random(options.seed), Translator.load(options.model)
    # Lines with braces of their own would be templates, and lines with spans are for the real ones.
    lines = [line for line in all_text(read_lines(options.src)) if not find_spans(line) and 3 < line.count(" ") < 40]
    sentences = made(rng, lines, options.sentences)
    with_digits = [line for line in lines if any(map(str.isdigit, line))]
    numbered = rng.sample(with_digits, min(len(with_digits), options.sentences))
    found: dict[str, dict[str, float]] = {}
    for verbatim in (False, True):
        kept, all_ = Counter[str](), Counter[str]()
        translations = translator.translate([text for text, _ in sentences], verbatim=verbatim)
        for (text, spans), translation in zip(sentences, translations, strict=True):
            for kind, span in spans:
                all_[kind] += 1
                kept[kind] += text.count(span) == translation.count(span)
        if verbatim:
            for (text, _), translation in zip(sentences[: options.show], translations, strict=False):
                print(f"{text}\n  {translation}", file=sys.stderr)
        for text, translation in zip(numbered, translator.translate(numbered, verbatim=verbatim), strict=True):
            all_["numbers"] += 1
            kept["numbers"] += groups(text) <= groups(translation)
        spans_all = sum(count for kind, count in all_.items() if kind != "numbers")
        spans_kept = sum(count for kind, count in kept.items() if kind != "numbers")
        shares = {kind: kept[kind] / count for kind, count in sorted(all_.items())} | {
            "all spans": spans_kept / spans_all
        }
        found["protected" if verbatim else "raw"] = shares
    print(f"{'':<12} {'count':>6} {'raw':>8} {'protected':>10}")
    for kind in found["raw"]:
        count = all_.get(kind, spans_all)
        print(f"{kind:<12} {count:>6} {found['raw'][kind]:>8.1%} {found['protected'][kind]:>10.1%}")
    if options.json:
        options.json.write_text(
            json.dumps(
                {
                    "seed": options.seed,
                    "options": str(translator.options()),
                    "models": translator.fingerprints,
                    **asdict(Machine.from_translator(translator)),
                    **found,
                },
                indent=2,
            )
        )


if __name__ == "__main__":
    main()
