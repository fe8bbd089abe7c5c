"""Text ↔ pieces: one SentencePiece model for both languages.

Any Unicode text survives encode → decode unchanged: no normalisation (that is `normalise`'s business), white space
kept, bytes for characters that the vocabulary lacks. SentencePiece writes a space as '▁' (U+2581), so a '▁' of the text
itself travels escaped. Encoded sentences end in EOS; decoding stops at nothing, it leaves special pieces out, and bytes
that make no character: whoever writes all pieces at once may spell only half of one.
"""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import random
import re
import string
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import sentencepiece
from pydantic import Field

from latentmt.config import Section
from latentmt.errors import UserError

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""The ids of the special pieces, everywhere."""

SPECIAL = frozenset((PAD, UNK, BOS, EOS))
"""Those that have no text."""

PLACEHOLDERS = "".join(map(chr, range(0xE010, 0xE020)))
"""Private-use characters that can stand for parts of a text to be repeated verbatim; a tokenizer may reserve pieces for
the first few."""


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig(Section):
    """How the vocabulary is learnt."""

    aliases: ClassVar[Mapping[str, str]] = {"vocabulary": "vocab_size"}

    vocab_size: Annotated[int, Field(ge=300)] = 32_000
    """Pieces in all: 4 special, 256 bytes, the rest learnt. A small corpus may yield fewer."""
    model: Literal["unigram", "bpe"] = "unigram"
    """SentencePiece's model type."""
    sample: Annotated[int, Field(ge=1)] = 500_000
    """Learn from this many sentences at most, drawn from both sides."""
    seed: Annotated[int, Field(ge=0)] = 1
    """Of that draw."""
    placeholders: Annotated[int, Field(ge=0, le=len(PLACEHOLDERS))] = 0
    """Pieces reserved for what is repeated verbatim: addresses, code, paths (`data.placeholders`)."""


# '▁' ↔ ESC 1 and ESC ↔ ESC 0, ESC being a private-use character: one-to-one for every text.
_ESCAPE = {"\ue000": "\ue0000", "▁": "\ue0001"}
_UNESCAPE = {escaped: plain for plain, escaped in _ESCAPE.items()}
_ESCAPABLE, _ESCAPED = re.compile("[\ue000▁]"), re.compile("\ue000[01]")

_BYTE = re.compile("<0x([0-9A-F]{2})>")

_ASCII = string.ascii_letters + string.digits + string.punctuation

_LEARNING_THREADS = 2  # the learnt scores are sums whose order depends on it, so it is not the machine's to choose


class Tokenizer:
    """A SentencePiece model with this project's conventions."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        """The model as SentencePiece stores it."""
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise UserError(f"not a SentencePiece model ({error})") from None
        special = [
            self._processor.pad_id(),
            self._processor.unk_id(),
            self._processor.bos_id(),
            self._processor.eos_id(),
        ]
        if special != [PAD, UNK, BOS, EOS]:
            raise UserError(f"a SentencePiece model with pad, unk, bos, eos = {special}, not {[PAD, UNK, BOS, EOS]}")

    @staticmethod
    def load(path: Path) -> Tokenizer:
        try:
            return Tokenizer(path.read_bytes())
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from None
        except UserError as error:
            raise UserError(f"{path}: {error}") from None

    @property
    def size(self) -> int:
        """How many pieces there are, special ones included."""
        return int(self._processor.get_piece_size())

    @functools.cached_property
    def placeholders(self) -> str:
        """The characters that stand for what is repeated verbatim, a piece each."""
        return "".join(one for one in PLACEHOLDERS if self._processor.piece_to_id(one) != UNK)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the model."""
        return hashlib.sha256(self.model).hexdigest()

    def encode(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """The ids of each text, EOS last."""
        escaped, encode = [_escaped(text) for text in texts], self._processor.encode
        if threads == 1:  # given a list it starts threads, which takes longer than most lists
            return [encode(text, add_eos=True) for text in escaped]
        encoded: list[list[int]] = encode(escaped, add_eos=True, num_threads=threads)
        return encoded

    def segmentations(self, text: str, most: int) -> list[tuple[list[int], float]]:
        """The likeliest ways of a unigram model to cut a text into pieces, without EOS, and their log-probabilities."""
        try:
            found = self._processor.nbest_encode(_escaped(text), nbest_size=most, add_eos=False)
        except RuntimeError:
            raise UserError("data.resample: only a unigram tokenizer knows other ways to cut a word") from None
        return [(ids, sum(map(self._processor.get_score, ids))) for ids in found]

    def decode(self, sentences: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sentence; special pieces have none, nor have bytes that make no character."""
        return [_ESCAPED.sub(lambda match: _UNESCAPE[match[0]], self._decoded(sentence)) for sentence in sentences]

    def _decoded(self, sentence: Sequence[int]) -> str:
        """The text that the vocabulary has for it, escaped."""
        ids = [int(id_) for id_, said in zip(sentence, self._said(sentence), strict=True) if said]
        text: str = self._processor.decode(ids)
        return text

    def _said(self, ids: Sequence[int]) -> list[bool]:
        """Which ids are part of the text: not the special ones, and bytes only where they make a character."""
        said = [id_ not in SPECIAL for id_ in ids]
        spelt = {place: int(byte[1], 16) for place, byte in enumerate(map(_BYTE.fullmatch, self.pieces(ids))) if byte}
        if not spelt:
            return said
        places = itertools.compress(range(len(ids)), said)  # special pieces do not part bytes
        for is_byte, run in itertools.groupby(places, spelt.__contains__):
            some = list(run) if is_byte else []
            for place, makes in zip(some, _makes_characters(bytes(map(spelt.__getitem__, some))), strict=True):
                said[place] = makes
        return said

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The ids as SentencePiece writes them, for people to look at."""
        return [self._processor.id_to_piece(int(id_)) for id_ in ids]

    def spans(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """From where to where each id is in the text that `decode` makes of them, without the space before it.

        What has no text is nowhere; a character that is spelt in bytes is where its first byte is.
        """
        spans, place, begun = [], 0, False
        for said, piece in zip(self._said(ids), self.pieces(ids), strict=True):
            start = place + (piece.startswith("▁") and begun)
            begun |= said
            if said and (byte := _BYTE.fullmatch(piece)):
                place += not 0x80 <= int(byte[1], 16) < 0xC0
            elif said:
                place = start + len(piece.removeprefix("▁"))
            spans.append((min(start, place), place))
        escapes = [match.start() for match in _ESCAPED.finditer(self._decoded(ids))]
        return [(start - bisect_left(escapes, start), end - bisect_left(escapes, end)) for start, end in spans]


def train_tokenizer(sentences: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Learn a tokenizer from sentences; the same sentences, configuration and seed give the same model."""
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([_escaped(text) for text in _sample(sentences, config.sample, config.seed)]),
            model_writer=model,
            model_type=config.model,
            vocab_size=config.vocab_size,
            hard_vocab_limit=False,
            max_sentence_length=100_000,
            num_threads=_LEARNING_THREADS,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            byte_fallback=True,
            character_coverage=0.9999,  # by default an "ö" that is seldom enough is spelt in bytes
            # SentencePiece's BPE aborts the process if a required character does not occur.
            required_chars=_ASCII if config.model == "unigram" else "",
            split_digits=True,
            user_defined_symbols=list(PLACEHOLDERS[: config.placeholders]),
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise UserError(f"the tokenizer could not be learnt: {' '.join(str(error).split())}") from None
    return Tokenizer(model.getvalue())


def _sample(sentences: Iterable[str], size: int, seed: int) -> list[str]:
    """At most `size` of the sentences, each equally likely (reservoir sampling).

    SentencePiece can draw a sample itself, but not the same one twice.
    """
    rng = random.Random(seed)
    sample: list[str] = []
    for seen, sentence in enumerate(sentences, start=1):
        if len(sample) < size:
            sample.append(sentence)
        elif (place := rng.randrange(seen)) < size:
            sample[place] = sentence
    return sample


def _escaped(text: str) -> str:
    return _ESCAPABLE.sub(lambda match: _ESCAPE[match[0]], text)


def _makes_characters(spelt: bytes) -> list[bool]:
    """Which bytes are part of a character in UTF-8."""
    characters = spelt.decode("utf-8", "surrogateescape")  # other bytes become half of a character each
    return [
        not "\ud800" <= character <= "\udfff"
        for character in characters
        for _ in character.encode("utf-8", "surrogateescape")
    ]
