from __future__ import annotations

from latentmt.data.placeholders import PairMasker, PlaceholderConfig
from latentmt.data.text import Pair
from latentmt.data.tokenizer import PLACEHOLDERS

NEVER, ALWAYS = PlaceholderConfig(share=0.0), PlaceholderConfig(share=1.0)


def unmasked(text: str, stands_for: dict[str, str]) -> str:
    return "".join(stands_for.get(character, character) for character in text)


def used(text: str) -> list[str]:
    return [character for character in text if character in PLACEHOLDERS]


def test_spans_of_both_sides_share_a_placeholder() -> None:
    pair = Pair("Siehe www.a.de, {x} und www.a.de.", "See {x}, www.a.de and www.a.de.")
    masked = PairMasker(PLACEHOLDERS[:4], NEVER)(pair)
    first, second, third = used(masked.source)
    assert first == third != second
    assert used(masked.target) == [second, first, first]
    stands_for = {first: "www.a.de", second: "{x}"}
    assert (unmasked(masked.source, stands_for), unmasked(masked.target, stands_for)) == (pair.source, pair.target)


def test_spans_of_only_one_side_are_not_replaced() -> None:
    for pair in (
        Pair("Siehe www.a.de.", "See www.a.com."),
        Pair("Siehe www.a.de und www.a.de.", "See www.a.de."),
        Pair("Peter sah 12 Hunde.", "Peter saw 12 dogs."),
    ):
        assert PairMasker(PLACEHOLDERS[:4], NEVER)(pair) == pair
    assert PairMasker("", ALWAYS)(Pair("Siehe {x}.", "See {x}.")) == Pair("Siehe {x}.", "See {x}.")


def test_names_and_numbers_of_both_sides_are_sampled() -> None:
    pair = Pair("Peter sah 12 Hunde in Berlin, sagte Anna.", "Anna said that Peter saw 12 dogs in Berlin.")
    masker, seen, counts = PairMasker(PLACEHOLDERS[:8], ALWAYS), set(), set()
    for _ in range(100):
        masked = masker(pair)
        assert sorted(used(masked.source)) == sorted(used(masked.target))
        assert len(set(used(masked.source))) == len(used(masked.source))
        seen |= {word for word in ("Peter", "12", "Berlin", "Anna", "Hunde") if word not in masked.source}
        seen |= set(used(masked.source))
        counts.add(len(used(masked.source)))
    assert seen == {"Peter", "12", "Berlin", "Anna", *PLACEHOLDERS[:8]}
    assert counts == {1, 2, 3}


def test_no_more_placeholders_are_used_than_reserved() -> None:
    spans = " ".join(f"{{a{number}}}" for number in range(6))
    masked = PairMasker(PLACEHOLDERS[:2], ALWAYS)(Pair(spans, spans))
    assert masked.source == masked.target
    assert sorted(used(masked.source)) == list(PLACEHOLDERS[:2])


def test_the_same_seed_gives_the_same_placeholders() -> None:
    pairs = [Pair(f"Peter sah {n} in Rom.", f"Peter saw {n} in Rom.") for n in range(50)]
    one, other, third = (
        [masker(pair) for pair in pairs]
        for masker in (PairMasker(PLACEHOLDERS[:8], PlaceholderConfig(share=0.5, seed=seed)) for seed in (1, 1, 2))
    )
    assert one == other != third
    assert 10 < sum(pair != masked for pair, masked in zip(pairs, one, strict=True)) < 40
