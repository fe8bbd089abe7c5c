"""How often a glossary's terms stand in the translation, without the glossary and with it, and what it costs.

    python benchmarks/glossary.py

Sentences and references are those of tests/fixtures/tatoeba. Terms are nouns of them with a translation that the model
seldom chooses by itself, so that most have to be forced.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import sacrebleu

from latentmt.text.glossary import Glossary
from latentmt.translator import Translator

FIXTURE = Path(__file__).parent.parent / "tests" / "fixtures" / "tatoeba"
TERMS = """Zeit=time|Geld=cash|Arbeit=labour|Haus=building|Hause=home|Vater=dad|Buch=volume|Auto=automobile
Leben=existence|Frau=lady|Mutter=mum|Mann=gentleman|Woche=week|Kind=youngster|Fehler=error|Freund=companion|Nacht=night
Mädchen=lass|Welt=globe|Meinung=opinion|Angelegenheit=matter|Junge=lad|Land=country|Spiel=match|Hund=hound
Problem=issue|Sohn=son|Sprache=tongue|Frage=query|Stadt=city|Polizei=police force|Plan=scheme|Arbeiter=labourer
Zug=train|Seite=page|Nachricht=notice|Schule=academy|Zimmer=chamber|Bank=credit institution|Bahnhof=railway station|Arzt=physician
Lehrer=instructor|Schwester=sister|Antwort=reply|Bett=bed|Kaffee=coffee|Wagen=vehicle|Büro=bureau|Tisch=desk"""


class Counting:
    """A backend that counts the sentences that it translates."""

    def __init__(self, backend: Any) -> None:
        self._backend, self.sentences = backend, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def best(self, sentences: Any, *arguments: Any) -> Any:
        self.sentences += len(sentences)
        return self._backend.best(sentences, *arguments)


def has(text: str, target: str) -> bool:
    """Whether a translation has a term, judged by a plain search."""
    return re.search(rf"\b{re.escape(target)}(?:e?s)?\b", text, re.IGNORECASE) is not None


def main() -> None:
    glossary = Glossary(dict(tuple(pair.split("=")) for pair in re.split(r"[|\n]", TERMS)))
    lines = zip(*((FIXTURE / f"train.{side}").read_text().splitlines() for side in ("de", "en")), strict=True)
    chosen = [(source, target, found) for source, target in lines if (found := glossary.find(source, "de"))]
    sources, references = [item[0] for item in chosen], [item[1] for item in chosen]
    translator = Translator.load(None, "cpu")
    counting = Counting(translator.backend)
    translator = translator.with_backend(counting)
    pairs = [(number, term.target) for number, (_, _, terms) in enumerate(chosen) for term in terms]
    outputs: dict[str, list[str]] = {}
    for name, terms in (("without", None), ("with", glossary)):
        counting.sentences, start = 0, time.process_time()
        outputs[name] = [translation.text for translation in translator.translations(sources, glossary=terms)]
        seconds = time.process_time() - start
        present = sum(has(outputs[name][number], target) for number, target in pairs)
        bleu = sacrebleu.corpus_bleu(outputs[name], [references])
        print(
            f"{name}: {present} of {len(pairs)} terms in {len(sources)} texts, BLEU {bleu.score:.1f}, "
            f"{counting.sentences} sentences translated, {seconds:.1f} s of CPU"
        )
    agreed = [
        number
        for number, (_, reference, terms) in enumerate(chosen)
        if all(has(reference, term.target) for term in terms)
    ]
    for name, texts in outputs.items():
        bleu = sacrebleu.corpus_bleu([texts[n] for n in agreed], [[references[n] for n in agreed]])
        print(f"{name}: BLEU {bleu.score:.1f} on the {len(agreed)} texts whose references have the terms")
    for number in range(0, len(sources), max(1, len(sources) // 40)):
        print("", sources[number], outputs["without"][number], outputs["with"][number], sep="\n  ")


if __name__ == "__main__":
    main()
