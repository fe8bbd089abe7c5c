"""The paper's numbers and claims, to compare with ours: Table 1 of Lee, Shu and Cho (EMNLP 2020), as printed there.

BLEU is theirs: lower-cased and tokenized as `intl` in their code. Times are milliseconds a sentence, one at a time, on
a Tesla V100, mean and standard deviation; speed-ups are over the autoregressive model with beam 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from latentmt.options import DecodingOptions

CITATION = (
    "J. Lee, R. Shu and K. Cho, “Iterative Refinement in the Continuous Space for Non-Autoregressive Neural Machine "
    "Translation”, EMNLP 2020, Table 1"
)


@dataclass(frozen=True)
class Entry:
    """One row of Table 1 for one corpus."""

    bleu: float
    ms: int
    std: int
    speedup: float


METHODS = ("delta", "energy", "score")
"""The refinement methods of the paper."""
PROPOSED, BASELINE = "score", "delta"
"""The method that the paper proposes, and the one it is compared with."""
AUTOREGRESSIVE = "AR b=4"
"""The row that gaps and speed-ups refer to."""
_SETTINGS = ("-1", "-2", "-4", " Search")
ROWS = ("AR b=1", AUTOREGRESSIVE, "L=0", *(f"{method}{setting}" for method in METHODS for setting in _SETTINGS))
"""The rows of Table 1 in its order; L=0, which is the same for all three methods, once."""
ORDERINGS = (
    *((f"{method}-1", "L=0") for method in METHODS),
    *((f"score{setting}", f"delta{setting}") for setting in _SETTINGS),
    *((f"energy{setting}", f"delta{setting}") for setting in _SETTINGS),
    *((f"score{setting}", f"energy{setting}") for setting in _SETTINGS),
    *((f"{method} Search", f"{method}-1") for method in METHODS),
    *((AUTOREGRESSIVE, f"{method} Search") for method in METHODS),
)
"""Pairs of rows, the first of which is better according to the paper."""


def row_of(options: DecodingOptions) -> str:
    """The name of the row that decoding options belong to; it need not be one of the paper's."""
    if options.method == "teacher":
        return f"AR b={options.beam}"
    if not options.refines:
        return "L=0"
    return f"{options.method} Search" if options.candidates > 1 else f"{options.method}-{options.steps}"


def table_order(method: str) -> int:
    """The position of a method in Table 1; methods that the paper does not have come last."""
    order = ("teacher", "prior", *METHODS)
    return order.index(method) if method in order else len(order)


def _entries(*numbers: tuple[float, int, int, float]) -> dict[str, Entry]:
    return {row: Entry(*four) for row, four in zip(ROWS, numbers, strict=True)}


TABLE = {
    "WMT'14 En→De": _entries(
        *((27.5, 251, 175, 1.1), (28.3, 291, 194, 1.0), (25.7, 19, 1, 15.0)),
        *((26.1, 46, 5, 6.3), (26.2, 72, 3, 4.0), (26.1, 103, 5, 2.8), (26.9, 63, 8, 5.5)),
        *((26.1, 50, 3, 5.8), (26.1, 69, 4, 4.2), (26.0, 117, 6, 2.5), (27.1, 66, 9, 4.4)),
        *((26.3, 29, 2, 10.0), (26.3, 38, 2, 7.6), (26.3, 51, 4, 5.7), (27.4, 47, 8, 6.2)),
    ),
    "WMT'16 Ro→En": _entries(
        *((30.9, 511, 560, 1.1), (31.5, 610, 630, 1.0), (28.4, 18, 5, 34.0)),
        *((29.0, 32, 5, 19.0), (29.1, 45, 7, 14.0), (29.1, 72, 5, 8.5), (30.3, 48, 7, 13.0)),
        *((28.8, 36, 5, 17.0), (28.9, 55, 9, 11.0), (28.8, 85, 5, 7.1), (30.4, 53, 7, 12.0)),
        *((29.1, 25, 5, 24.0), (29.1, 32, 6, 19.0), (29.1, 44, 5, 14.0), (30.4, 41, 6, 15.0)),
    ),
    "IWSLT'16 De→En": _entries(
        *((31.1, 178, 139, 1.1), (31.5, 210, 161, 1.0), (27.0, 11, 5, 19.0)),
        *((28.3, 18, 6, 11.0), (28.5, 26, 7, 8.0), (28.6, 40, 9, 5.2), (29.7, 35, 6, 6.0)),
        *((28.6, 22, 7, 9.5), (28.7, 30, 9, 7.0), (28.8, 46, 9, 4.5), (29.9, 42, 7, 5.0)),
        *((28.8, 16, 6, 13.0), (29.0, 20, 5, 10.0), (29.1, 28, 5, 7.5), (30.2, 33, 4, 6.3)),
    ),
}
"""Corpus → row → numbers."""

_BY_LANGUAGES = {("en", "de"): "WMT'14 En→De", ("ro", "en"): "WMT'16 Ro→En", ("de", "en"): "IWSLT'16 De→En"}


def corpus_for(languages: tuple[str, str]) -> str:
    """The paper's corpus to compare with: the one of these languages, else the one it analyses most closely."""
    return _BY_LANGUAGES.get(languages, "IWSLT'16 De→En")
