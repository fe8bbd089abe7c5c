"""The paper's numbers agree with each other, so they were copied correctly."""

from __future__ import annotations

import pytest

from latentmt.measure.paper import ORDERINGS, ROWS, TABLE, corpus_for, row_of, table_order
from latentmt.options import DecodingOptions


@pytest.mark.parametrize("corpus", TABLE)
def test_speed_ups_are_ratios_of_times(corpus: str) -> None:
    entries = TABLE[corpus]
    assert tuple(entries) == ROWS
    for row, entry in entries.items():
        if (corpus, row) != ("WMT'14 En→De", "delta Search"):  # there the paper prints 5.5× for 291 / 63 ms
            assert entries["AR b=4"].ms / entry.ms == pytest.approx(entry.speedup, rel=0.09)  # digits were cut off


def test_differences_that_the_papers_text_states() -> None:
    german = TABLE["IWSLT'16 De→En"]
    assert german["score-4"].bleu - german["L=0"].bleu == pytest.approx(2.1)
    into = TABLE["WMT'14 En→De"]
    assert into["AR b=4"].bleu - into["score Search"].bleu == pytest.approx(0.9)
    for entries in TABLE.values():
        refining = {row: entry.bleu for row, entry in entries.items() if not row.startswith("AR")}
        assert max(refining.values()) == refining["score Search"]


def test_the_row_of_decoding_options() -> None:
    search = {"lengths": 5, "samples": 5, "rerank": "teacher"}
    assert row_of(DecodingOptions(method="teacher", beam=4)) == "AR b=4"
    assert row_of(DecodingOptions(method="score", steps=0)) == row_of(DecodingOptions(method="prior")) == "L=0"
    assert row_of(DecodingOptions(method="energy", steps=2, length_bias=0.1)) == "energy-2"
    assert row_of(DecodingOptions(method="delta", steps=1, **search)) == "delta Search"
    assert corpus_for(("ro", "en")) == "WMT'16 Ro→En"
    assert corpus_for(("fr", "it")) == corpus_for(("de", "en")) == "IWSLT'16 De→En"


def test_orderings_are_between_rows_of_the_table() -> None:
    assert len(set(ORDERINGS)) == len(ORDERINGS) == 21
    assert {row for pair in ORDERINGS for row in pair} <= set(ROWS)


def test_methods_that_the_paper_does_not_have_come_last() -> None:
    methods = ["curl", "prior", "delta", "score", "energy", "teacher"]
    assert sorted(methods, key=table_order) == ["teacher", "prior", "delta", "energy", "score", "curl"]
