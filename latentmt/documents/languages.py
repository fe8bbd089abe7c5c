"""The languages that a catalogue says it has, and those that it is translated between."""

from __future__ import annotations

import re

from latentmt.errors import UserError

Languages = tuple[str, str]
"""Source and target. One that is not known is empty."""
UNKNOWN: Languages = ("", "")

_FIRST = re.compile(r"[A-Za-z]*+")
_PLURALS = {
    "nplurals=2; plural=(n != 1);": "bg da de el en es et fi hu it nb nl no pt sv",
    "nplurals=2; plural=(n > 1);": "fr",
    "nplurals=1; plural=0;": "id ja ko th vi zh",
    "nplurals=3; plural=(n==1 ? 0 : (n==0 || (n%100 > 0 && n%100 < 20)) ? 1 : 2);": "ro",
    "nplurals=3; plural=(n==1) ? 0 : (n>=2 && n<=4) ? 1 : 2;": "cs sk",
    "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);": "pl",
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);": "ru uk",
}
PLURAL_FORMS = {language: rule for rule, languages in _PLURALS.items() for language in languages.split()}
"""How gettext chooses a plural form by a number n, by language. The first form is the singular if there are several."""


def is_same(one: str, other: str) -> bool:
    """Whether two codes name the same language, of whatever country or script: en, en-GB, EN_us."""
    return _base(one) == _base(other)


def check_languages(source: str, target: str, languages: Languages) -> None:
    """Refuse a catalogue between other languages than those of the translation. What is empty is not compared."""
    for kind, stated, wanted in (("from", source, languages[0]), ("into", target, languages[1])):
        if stated and wanted and not is_same(stated, wanted):
            raise UserError(f"a catalogue {kind} {stated[:40]!r}, but what is translated is {kind} {wanted!r}")


def _base(code: str) -> str:
    match = _FIRST.match(code.strip())
    return match[0].lower() if match else ""
