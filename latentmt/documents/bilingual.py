"""A page with a document's texts and their translations side by side. It stands alone and needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from latentmt.results import Translation

_HEAD = """<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1rem/1.5 system-ui, sans-serif; margin: 1rem auto; max-width: 75rem; padding: 0 1rem }}
h1 {{ font-size: 1.25rem }}
table {{ border-collapse: collapse; table-layout: fixed; width: 100% }}
td {{ border-top: 1px solid #8886; overflow-wrap: anywhere; padding: .5rem }}
td {{ vertical-align: top; white-space: pre-wrap }}
@media (max-width: 40rem) {{
  td {{ display: block; padding: .25rem 0 }}
  td + td {{ border-top: 0; padding-bottom: .75rem }}
  td:first-child {{ opacity: .7 }}
}}
</style>
</head>
<body>
<h1>{title}</h1>
<table>
"""


def bilingual_page(
    title: str, texts: Sequence[str], translations: Sequence[Translation], languages: tuple[str, str] | None
) -> bytes:
    """The page as HTML. On a narrow screen each translation stands below its text."""
    source, target = (f' lang="{escape(language)}"' for language in languages or ("und", "und"))
    parts = [_HEAD.format(title=escape(title), language=escape(languages[1] if languages else "und"))]
    parts += [
        f'<tr><td{source} dir="auto">{escape(text)}</td><td{target} dir="auto">{escape(translation.text)}</td></tr>\n'
        for text, translation in zip(texts, translations, strict=True)
    ]
    return "".join([*parts, "</table>\n</body>\n</html>\n"]).encode("utf-8", "replace")
