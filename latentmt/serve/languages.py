"""The names of languages, and language detection."""

from __future__ import annotations

import math
from collections.abc import Collection

from latentmt.serve.schemas import DetectedLanguage

_MAX_CHARACTERS = 2000
"""Characters of a text that are read."""
_MIN_CONFIDENCE = 1.0
"""Per cent below which a language is left out."""


def _names(text: str) -> dict[str, str]:
    return dict(entry.split(":") for entry in text.split())


NAMES = _names(
    """
    af:Afrikaans am:Amharic an:Aragonese ar:Arabic as:Assamese az:Azerbaijani be:Belarusian bg:Bulgarian bn:Bengali
    br:Breton bs:Bosnian ca:Catalan cs:Czech cy:Welsh da:Danish de:German dz:Dzongkha el:Greek en:English
    eo:Esperanto es:Spanish et:Estonian eu:Basque fa:Persian fi:Finnish fo:Faroese fr:French ga:Irish gl:Galician
    gu:Gujarati he:Hebrew hi:Hindi hr:Croatian ht:Haitian hu:Hungarian hy:Armenian id:Indonesian is:Icelandic
    it:Italian ja:Japanese jv:Javanese ka:Georgian kk:Kazakh km:Khmer kn:Kannada ko:Korean ku:Kurdish ky:Kyrgyz
    la:Latin lb:Luxembourgish lo:Lao lt:Lithuanian lv:Latvian mg:Malagasy mk:Macedonian ml:Malayalam mn:Mongolian
    mr:Marathi ms:Malay mt:Maltese nb:Bokmål ne:Nepali nl:Dutch nn:Nynorsk no:Norwegian oc:Occitan or:Odia
    pa:Punjabi pl:Polish ps:Pashto pt:Portuguese qu:Quechua ro:Romanian ru:Russian rw:Kinyarwanda se:Sami si:Sinhala
    sk:Slovak sl:Slovenian sq:Albanian sr:Serbian sv:Swedish sw:Swahili ta:Tamil te:Telugu th:Thai tl:Tagalog
    tr:Turkish ug:Uyghur uk:Ukrainian ur:Urdu vi:Vietnamese vo:Volapük wa:Walloon xh:Xhosa zh:Chinese zu:Zulu
    """
)


def language_name(code: str) -> str:
    """A language's English name, or the code if it is unknown."""
    return NAMES.get(code, code)


def detect(text: str, among: Collection[str] | None = None) -> list[DetectedLanguage]:
    """The languages a text may be in, likeliest first, at least one. `among` restricts the choice.

    Languages of `among` that py3langid does not know are equally likely. So are all if the text has no letters.
    """
    import py3langid

    text = text[:_MAX_CHARACTERS]
    ranked: list[tuple[str, float]] = py3langid.rank(text)
    scores = {language: float(score) for language, score in ranked}
    if among is not None:
        worst = min(scores.values())
        scores = {language: scores.get(language, worst) for language in among}
    if not any(character.isalpha() for character in text):
        scores = dict.fromkeys(scores, 0.0)
    best = max(scores.values())
    total = sum(math.exp(score - best) for score in scores.values())
    guesses = [
        DetectedLanguage(language=code, confidence=round(100 * math.exp(score - best) / total, 1))
        for code, score in scores.items()
    ]
    guesses.sort(key=lambda guess: -guess.confidence)
    return [guess for guess in guesses if guess.confidence >= _MIN_CONFIDENCE] or guesses[:1]
