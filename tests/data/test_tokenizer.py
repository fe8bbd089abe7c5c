from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from latentmt.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer, TokenizerConfig, train_tokenizer
from latentmt.errors import UserError

SAMPLE = Path(__file__).parent.parent / "fixtures" / "tatoeba"


def sentences() -> list[str]:
    return [line for side in ("de", "en") for line in (SAMPLE / f"train.{side}").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(sentences(), TokenizerConfig(vocab_size=1200))


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
@example("▁")
@example("\ue0001▁\ue000")
@example("  two  spaces ")
@example(" ")
@example("<s></s><unk><pad><0x41>")
@example("\0\n\r\u2028\x85")
@example("👩\u200d👩\u200d👧 e\u0301 \ufffd ⁇")
def test_any_text_is_decoded_unchanged(tokenizer: Tokenizer, text: str) -> None:
    (ids,) = tokenizer.encode([text])
    assert ids[-1] == EOS
    assert not {PAD, UNK, BOS, EOS} & set(ids[:-1])
    assert tokenizer.decode([ids]) == [text]


def test_sentences_are_decoded_unchanged_with_any_number_of_threads(tokenizer: Tokenizer) -> None:
    texts = sentences()
    encoded = tokenizer.encode(texts, threads=2)
    assert encoded == tokenizer.encode(texts, threads=1)
    assert tokenizer.decode(encoded) == texts


def test_special_pieces_have_no_text(tokenizer: Tokenizer) -> None:
    (ids,) = tokenizer.encode(["Guten Tag"])
    assert tokenizer.decode([[BOS, *ids, PAD, EOS, UNK]]) == ["Guten Tag"]
    assert tokenizer.decode([[]]) == [""]


@given(data=st.data())
def test_incomplete_byte_sequences_have_no_text(tokenizer: Tokenizer, data: st.DataObject) -> None:
    """Whatever is decoded, half a character never becomes U+FFFD; whole ones beside it stay."""
    piece = st.sampled_from(["a", "▁b", "😀", *(bytes([byte]) for byte in b"A\x80\x9f\xa0\xc3\xe2\xed\xf0\xf4\xff")])
    written = data.draw(st.lists(piece, max_size=12))
    ids, expected = [], b""
    for one in written:
        ids += bytes_of(tokenizer, one if isinstance(one, bytes) else one.encode() if one == "😀" else b"")
        ids += [tokenizer.pieces(range(tokenizer.size)).index(one)] if one in ("a", "▁b") else []
        expected += one if isinstance(one, bytes) else one.replace("▁", " ").encode()
    text = expected.decode("utf-8", "ignore")
    text = text[1:] if text.startswith(" ") else text
    assert tokenizer.decode([ids]) == [text]
    assert "\ufffd" not in text
    spans = tokenizer.spans(ids)
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    covered = {place for start, end in spans for place in range(start, end)}
    assert covered == {place for place, character in enumerate(text) if character != " "}


def bytes_of(tokenizer: Tokenizer, spelt: bytes) -> list[int]:
    pieces = tokenizer.pieces(range(tokenizer.size))
    return [pieces.index(f"<0x{byte:02X}>") for byte in spelt]


def test_half_an_emoji_is_left_out_and_the_others_stay(tokenizer: Tokenizer) -> None:
    emoji = bytes_of(tokenizer, "😀".encode())
    assert tokenizer.decode([emoji + emoji[:3], emoji[1:], [*emoji[:2], UNK, *emoji[2:]]]) == ["😀", "", "😀"]
    assert tokenizer.decode([bytes_of(tokenizer, b"Rivi\xc3\xc3\xa8re")]) == ["Rivière"]


def test_a_sentence_takes_fewer_pieces_than_characters_and_digits_stand_alone(tokenizer: Tokenizer) -> None:
    (ids,) = tokenizer.encode(["Ich habe 2047 Bücher."])
    assert len(ids) < len("Ich habe 2047 Bücher.")
    assert [piece for piece in tokenizer.pieces(ids) if piece.isdigit()] == ["2", "0", "4", "7"]


def test_the_vocabulary_is_a_function_of_text_configuration_and_seed(tokenizer: Tokenizer) -> None:
    assert tokenizer.size == 1200
    again = train_tokenizer(sentences(), TokenizerConfig(vocab_size=1200))
    assert again.model == tokenizer.model
    drawn = [train_tokenizer(sentences(), TokenizerConfig(vocab_size=600, sample=500, seed=s)).model for s in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_small_corpus_gives_fewer_pieces() -> None:
    assert 300 < train_tokenizer(["ein kleiner Satz", "a small sentence"], TokenizerConfig(vocab_size=8000)).size < 8000


def test_no_text_is_an_error() -> None:
    with pytest.raises(UserError, match="the tokenizer could not be learnt"):
        train_tokenizer([], TokenizerConfig())


def test_files_that_are_no_tokenizers_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="missing: cannot be read"):
        Tokenizer.load(tmp_path / "missing")
    (tmp_path / "bad.model").write_bytes(b"nonsense")
    with pytest.raises(UserError, match=r"bad\.model: not a SentencePiece model"):
        Tokenizer.load(tmp_path / "bad.model")
