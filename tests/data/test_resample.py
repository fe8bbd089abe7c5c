import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentmt.data.resample import ResampleConfig, Resampler
from latentmt.data.tokenizer import EOS, Tokenizer, TokenizerConfig, train_tokenizer
from latentmt.errors import UserError

TEXT = (Path(__file__).parent.parent / "fixtures" / "tatoeba" / "train.de").read_text("utf-8").splitlines()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXT, TokenizerConfig(vocab_size=1000))


@settings(deadline=None, max_examples=settings().max_examples * 2)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40))
def test_any_text_is_decoded_unchanged(tokenizer: Tokenizer, text: str) -> None:
    drawn = Resampler(tokenizer, ResampleConfig(alpha=0.1))(text)
    assert drawn[-1] == EOS
    assert tokenizer.decode([drawn]) == [text]


def test_segmentations_are_sampled_with_their_probabilities(tokenizer: Tokenizer) -> None:
    alpha, draws = 0.4, 20_000
    ways = tokenizer.segmentations("nicht", 16)
    powers = [math.exp(alpha * score) for _, score in ways]
    assert ways[0][0] == tokenizer.encode(["nicht"])[0][:-1]
    resampled = Resampler(tokenizer, ResampleConfig(alpha=alpha))
    counts = Counter(tuple(resampled("nicht")[:-1]) for _ in range(draws))
    assert len(counts) > 4
    for (ids, _), power in zip(ways, powers, strict=True):
        share = power / sum(powers)
        assert counts[tuple(ids)] / draws == pytest.approx(share, abs=4 * math.sqrt(share / draws))


def test_words_are_segmented_independently(tokenizer: Tokenizer) -> None:
    resampled = Resampler(tokenizer, ResampleConfig())
    drawn = [resampled("nicht nicht") for _ in range(50)]
    halves = [(tuple(ids[: len(ids) // 2]), tuple(ids[len(ids) // 2 : -1])) for ids in drawn]
    assert len({tuple(ids) for ids in drawn}) > 5
    assert any(left != right for left, right in halves)


def test_samples_are_a_function_of_texts_and_seed(tokenizer: Tokenizer) -> None:
    def drawn(seed: int) -> list[list[int]]:
        resampled = Resampler(tokenizer, ResampleConfig(seed=seed))
        return [resampled(text) for text in TEXT[:100]]

    assert drawn(1) == drawn(1) != drawn(2)


def test_resampling_needs_a_unigram_model() -> None:
    bpe = train_tokenizer(TEXT, TokenizerConfig(vocab_size=400, model="bpe"))
    with pytest.raises(UserError, match="only a unigram tokenizer"):
        Resampler(bpe, ResampleConfig())("nicht")
