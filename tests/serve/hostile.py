"""Malformed HTML and hostile translations, made at random from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from latentmt.results import Link, Translation


def _words(text: str) -> list[str]:
    return text.split()


NAMES = _words(
    """
    a b i u s em strong span font nobr p div li ul dd dt h1 h2 pre listing form button table tbody thead tr td th
    caption colgroup col select option optgroup title textarea script style xmp iframe noembed noframes noscript
    template plaintext svg math mtext mi mo annotation-xml mglyph malignmark foreignObject desc br hr img input object
    marquee applet body html head frameset frame base link meta video source code label x-y
    """
)
ATTRIBUTES = [
    *(
        "",
        "",
        "",
        " class=x",
        " id='y'",
        ' title="a > b"',
        " translate=no",
        ' title="</noscript><img src=x onerror=hit()>"',
    ),
    *(
        ' title="&lt;/style&gt;&lt;img src=x onerror=hit()&gt;"',
        " a=`b`",
        ' b="',
        " c='",
        " d=<img",
        " =",
        ' x"y=z',
        "/",
    ),
    *(
        ' href="javascript:hit()"',
        " encoding=text/html",
        " alt='--><img src=x onerror=hit()>'",
        " \0n=1",
        " type=hidden",
    ),
]
TEXTS = [
    *(
        "Guten Tag.",
        "Das ist ein Haus.",
        "ja",
        " ",
        "\n",
        "a b",
        "&lt;b&gt;",
        "&amp;lt;img src=x onerror=hit()&amp;gt;",
    ),
    *(
        "&#60;img src=x onerror=hit()&#62;",
        "&",
        "&nbsp;",
        "&notit;",
        "<",
        "</",
        "<!",
        "<?",
        "<3",
        ">",
        '"',
        "'",
        "`",
        "\0",
    ),
    *(
        "]]>",
        "-->",
        "--!>",
        "<!--",
        "<!-->",
        "<!--->",
        "<!-- x -->",
        "<!-- x --!>",
        "<![CDATA[",
        "<![CDATA[x]]>",
        "<?x y?>",
    ),
    *(
        "<!doctype html>",
        "</p>",
        "</br>",
        "</a",
        "<a ",
        '<a title="x>Das ist ein Haus.<img src=x onerror=hit()>',
        "\r\n",
    ),
    *(
        "</script>",
        "</style>",
        "</title>",
        "</textarea>",
        "</noscript>",
        "</template>",
        "</svg>",
        "</math>",
        "</select>",
    ),
]
CLASSICS = [
    '<p>Guten Tag.</p><a title="x>Das ist ein Haus.<img src=x onerror=hit()>',
    '<noscript><p title="</noscript><img src=x onerror=hit()>">Haus</noscript>',
    "<noscript><b title='&lt;/noscript&gt;&lt;img src=x onerror=hit()&gt;'>Haus</b></noscript>",
    "<svg></p><style><a title='</style><img src=x onerror=hit()>'>Haus",
    "<svg><style>&lt;img src=x onerror=hit()&gt;</style>Haus</svg>",
    '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=hit()&gt;">',
    '<math><mtext><table><mglyph><style><math><img src="</style><img src=x onerror=hit()>">Haus',
    "<form><math><mtext></form><form><mglyph><style></math><img src onerror=hit()>Haus",
    '<math><annotation-xml encoding="text/html"><style><img title="</style><img src=x onerror=hit()>">',
    "<svg><annotation-xml><foreignObject><style><!--</style><p title='--><img src=x onerror=hit()>'>Haus",
    "<table><tr><td>Haus<select><option><style></option></select><img src=x onerror=hit()></style>",
    "<select><style></select><img src=x onerror=hit()></style></select>Haus",
    "<select><iframe></select><img src=x onerror=hit()></iframe>Haus",
    "<template><s><template><s><img src=x onerror=hit()>@shafigullin</s></template></s></template>Haus",
    "<xmp><p title='</xmp><img src=x onerror=hit()>'>Haus",
    "<iframe><p title='</iframe><img src=x onerror=hit()>'>Haus",
    "<title>&lt;/title&gt;&lt;img src=x onerror=hit()&gt;</title>Haus",
    "<textarea>&lt;/textarea&gt;&lt;img src=x onerror=hit()&gt;</textarea>Haus",
    "<plaintext>Haus<img src=x onerror=hit()>",
    "<p id='a'><b id='b'><p>Haus</p></b>" + "<b>" * 9 + "<table><b>Haus",
    "<a><table><a><tr><a>Haus",
    "<svg><a><p>Haus<![CDATA[><img src=x onerror=hit()>]]></svg>",
    "<![CDATA[<!--]]><img src=x onerror=hit()><!-- -->Haus",
    "<!--><img src=x onerror=hit()>-->Haus",
    "<?xml x ><img src=x onerror=hit()> ?>Haus",
    "<b <script>hit()</script>0>Haus",
    "<image src=x>Haus<isindex>",
    "<frameset><frame src=javascript:hit()></frameset>Haus",
]
PAYLOADS = [
    "<img src=x onerror=hit()>",
    '"><script>hit()</script>',
    "'><svg onload=hit()>",
    "--><img src=x onerror=hit()><!--",
    "--!><img src=x onerror=hit()>",
    "]]><img src=x onerror=hit()>",
    "</title></textarea></style></script></noscript></xmp></iframe></template><img src=x onerror=hit()>",
    "&lt;img src=x onerror=hit()&gt;",
    "&#60;img src=x onerror=hit()&#62;",
    "<!--",
    "<![CDATA[",
    "<plaintext>",
    "<a href=javascript:hit()>x</a>",
    "` onmouseover=hit() `",
    "\0<\0script>hit()</script>",
    "the house & the <b>yard</b>",
    "",
]


def document(rng: random.Random) -> str:
    """Malformed HTML."""
    classic = rng.random() < 0.1
    scraps = [rng.choice(CLASSICS)] if classic else []
    scraps += [_scrap(rng) for _ in range(rng.randrange(4) if classic else rng.randrange(1, 16))]
    return "".join(scraps).replace("<!--!>", "<!-- !>")  # where the other parser ends a comment, and browsers do not


def _scrap(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(TEXTS)
    if kind < 0.75:
        return f"<{rng.choice(NAMES)}{rng.choice(ATTRIBUTES)}{rng.choice(['>', '>', '>', '>', '/>', ''])}"
    return f"</{rng.choice(NAMES)}>"


def translations(texts: Sequence[str], rng: random.Random) -> list[Translation]:
    """Translations that contain markup, with alignments that make no sense."""
    return [_translation(text, rng) for text in texts]


def _translation(text: str, rng: random.Random) -> Translation:
    result = " ".join(rng.choice(PAYLOADS) for _ in range(rng.randrange(1, 4)))
    links = []
    for _ in range(rng.randrange(6)):
        source, target = rng.randrange(len(text)), rng.randrange(len(result) + 1)
        links.append(Link((source, source + rng.randrange(1, 9)), (target, target + rng.randrange(1, 9)), rng.random()))
    return Translation(result, alignment=links)
