"""The language of a text, as far as a request depends on it: which model translates it, and whether it needs one."""

from __future__ import annotations

from latentmt.serve.facts import AUTO
from latentmt.serve.languages import detect, language_name
from latentmt.serve.models import Models
from latentmt.serve.schemas import DetectedLanguage

_MIN_CONFIDENCE = 90.0
"""Per cent from which on a detected language is trusted. Below, a text is taken to be in one that is translated."""
_EVIDENT = 99.0
"""Per cent from which on a language contradicts what a request says."""
_MIN_WORDS = 3
"""Of a text whose language can be evident."""
_MAX_WORDS_READ = 200
"""Characters in which words are counted."""


def source_language(text: str, target: str, models: Models) -> DetectedLanguage:
    """The detected language of a text; if that is uncertain, the likeliest of those translated into the target."""
    likeliest = detect(text)[0]
    if likeliest.confidence >= _MIN_CONFIDENCE:
        return likeliest
    sources, targets = zip(*(facts.pair for facts in models.candidates(AUTO, target)), strict=True)
    guesses = detect(text, dict.fromkeys([*sources, *targets]))
    likely = (guess for guess in guesses if guess.language in sources or guess.confidence >= _MIN_CONFIDENCE)
    return next(likely, DetectedLanguage(language=sources[0], confidence=0))


def evident_language(text: str, stated: str) -> DetectedLanguage | None:
    """The language of a text, if it is evidently another one than stated. A word or two prove nothing."""
    if len(text[:_MAX_WORDS_READ].split()) < _MIN_WORDS:
        return None
    likeliest = detect(text)[0]
    return likeliest if likeliest.language != stated and likeliest.confidence >= _EVIDENT else None


def warning(found: DetectedLanguage | None, stated: DetectedLanguage) -> str | None:
    """What to say of a text that is evidently in another language than stated."""
    if found is None:
        return None
    return f"This text seems to be {language_name(found.language)}, not {language_name(stated.language)}."
