"""Text ↔ pieces: one SentencePiece model for both languages.

Encoding and decoding leave any Unicode text unchanged: there is no normalisation (see `normalise`), white space is
kept, and characters that are not in the vocabulary are encoded as bytes. SentencePiece writes a space as '▁' (U+2581),
so a '▁' in the text is escaped. Encoded sentences end in EOS. Decoding does not stop at EOS. It leaves out special
pieces and incomplete byte sequences, which a non-autoregressive decoder may produce.
"""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import random
import re
import string
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import sentencepiece
from pydantic import Field

from latentmt.config import Section
from latentmt.errors import UserError

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""The ids of the special pieces."""

SPECIAL = frozenset((PAD, UNK, BOS, EOS))
"""Ids of pieces without text."""

BLANK = BOS
"""What a place of CTC writes if it writes nothing. No target has it, and a teacher's input is none of CTC's."""

PLACEHOLDERS = "".join(map(chr, range(0xE010, 0xE020)))
"""Private-use characters that stand for spans to copy verbatim. A tokenizer may reserve pieces for the first few."""


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig(Section):
    """How the tokenizer is trained."""

    aliases: ClassVar[Mapping[str, str]] = {"vocabulary": "vocab_size"}

    vocab_size: Annotated[int, Field(ge=300)] = 32_000
    """The number of pieces: 4 special, 256 bytes, the rest learnt. A small corpus may give fewer."""
    model: Literal["unigram", "bpe"] = "unigram"
    """SentencePiece's model type."""
    sample: Annotated[int, Field(ge=1)] = 500_000
    """The maximum number of training sentences, sampled from both sides."""
    seed: Annotated[int, Field(ge=0)] = 1
    """The seed of that sample."""
    placeholders: Annotated[int, Field(ge=0, le=len(PLACEHOLDERS))] = 0
    """Pieces reserved for spans to copy verbatim: addresses, code, paths (`data.placeholders`)."""


# '▁' ↔ ESC 1 and ESC ↔ ESC 0, where ESC is a private-use character. This is one-to-one for every text.
_ESCAPE = {"\ue000": "\ue0000", "▁": "\ue0001"}
_UNESCAPE = {escaped: plain for plain, escaped in _ESCAPE.items()}
_ESCAPABLE, _ESCAPED = re.compile("[\ue000▁]"), re.compile("\ue000[01]")

_BYTE = re.compile("<0x([0-9A-F]{2})>")

_ASCII = string.ascii_letters + string.digits + string.punctuation

_TRAINING_THREADS = 2  # fixed: the trained scores are sums whose order depends on it


class Tokenizer:
    """A SentencePiece model with the conventions of this package."""

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
        """The number of pieces, including special ones."""
        return int(self._processor.get_piece_size())

    @functools.cached_property
    def placeholders(self) -> str:
        """The placeholder characters that have a piece of their own."""
        return "".join(character for character in PLACEHOLDERS if self._processor.piece_to_id(character) != UNK)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the model."""
        return hashlib.sha256(self.model).hexdigest()

    def encode(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """The ids of each text, followed by EOS."""
        escaped, encode = [_escaped(text) for text in texts], self._processor.encode
        if threads == 1:  # for a list SentencePiece starts threads, which is slower for short lists
            return [encode(text, add_eos=True) for text in escaped]
        encoded: list[list[int]] = encode(escaped, add_eos=True, num_threads=threads)
        return encoded

    def segmentations(self, text: str, nbest: int) -> list[tuple[list[int], float]]:
        """The n best segmentations of a unigram model, without EOS, and their log-probabilities."""
        try:
            pieces = self._processor.nbest_encode(_escaped(text), nbest_size=nbest, add_eos=False)
        except RuntimeError:
            raise UserError("data.resample: only a unigram tokenizer has other segmentations of a word") from None
        return [(ids, sum(map(self._processor.get_score, ids))) for ids in pieces]

    def decode(self, sentences: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sentence, without special pieces and incomplete byte sequences."""
        return [_ESCAPED.sub(lambda match: _UNESCAPE[match[0]], self._decoded(sentence)) for sentence in sentences]

    def _decoded(self, sentence: Sequence[int]) -> str:
        """The text of a sentence, still escaped."""
        ids = [int(id_) for id_, has_text in zip(sentence, self._has_text(sentence), strict=True) if has_text]
        text: str = self._processor.decode(ids)
        return text

    def _has_text(self, ids: Sequence[int]) -> list[bool]:
        """Which ids are part of the text: not the special ones, and bytes only if they form a character."""
        has_text = [id_ not in SPECIAL for id_ in ids]
        matches = map(_BYTE.fullmatch, self.pieces(ids))
        byte_values = {position: int(match[1], 16) for position, match in enumerate(matches) if match}
        if not byte_values:
            return has_text
        positions = itertools.compress(range(len(ids)), has_text)  # special pieces do not separate bytes
        for is_byte, run in itertools.groupby(positions, byte_values.__contains__):
            byte_positions = list(run) if is_byte else []
            valid = _are_characters(bytes(byte_values[position] for position in byte_positions))
            for position, is_character in zip(byte_positions, valid, strict=True):
                has_text[position] = is_character
        return has_text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces of the ids, as SentencePiece writes them."""
        return [self._processor.id_to_piece(int(id_)) for id_ in ids]

    def spans(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """The start and end of each id in the decoded text, without the space before it.

        An id without text has an empty span. A character encoded as bytes is at its first byte.
        """
        spans, position, started = [], 0, False
        for has_text, piece in zip(self._has_text(ids), self.pieces(ids), strict=True):
            start = position + (piece.startswith("▁") and started)
            started |= has_text
            if has_text and (byte := _BYTE.fullmatch(piece)):
                position += not 0x80 <= int(byte[1], 16) < 0xC0
            elif has_text:
                position = start + len(piece.removeprefix("▁"))
            spans.append((min(start, position), position))
        escapes = [match.start() for match in _ESCAPED.finditer(self._decoded(ids))]
        return [(start - bisect_left(escapes, start), end - bisect_left(escapes, end)) for start, end in spans]


def train_tokenizer(sentences: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Train a tokenizer on sentences. The same sentences and configuration give the same model."""
    sample, model = [_escaped(text) for text in _sample(sentences, config.sample, config.seed)], io.BytesIO()
    try:
        _interruptible(
            sentencepiece.SentencePieceTrainer.train,
            sentence_iterator=iter(sample),
            model_writer=model,
            model_type=config.model,
            vocab_size=config.vocab_size,
            hard_vocab_limit=False,
            max_sentence_length=100_000,
            num_threads=_TRAINING_THREADS,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            byte_fallback=True,
            character_coverage=0.9999,  # with the default, a rare "ö" is encoded as bytes
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


def _interruptible(function: Callable[..., object], **arguments: Any) -> None:
    """Call a long function of another language in a thread, so that signals are handled while it runs."""
    problems: list[Exception] = []

    def call() -> None:
        try:
            function(**arguments)
        except Exception as error:
            problems.append(error)

    thread = threading.Thread(target=call, name=function.__name__, daemon=True)
    thread.start()
    thread.join()
    if problems:
        raise problems[0]


def _sample(sentences: Iterable[str], size: int, seed: int) -> list[str]:
    """At most `size` of the sentences, each equally likely (reservoir sampling).

    SentencePiece's own sampling is not deterministic.
    """
    rng = random.Random(seed)
    sample: list[str] = []
    for count, sentence in enumerate(sentences, start=1):
        if len(sample) < size:
            sample.append(sentence)
        elif (position := rng.randrange(count)) < size:
            sample[position] = sentence
    return sample


def _escaped(text: str) -> str:
    return _ESCAPABLE.sub(lambda match: _ESCAPE[match[0]], text)


def _are_characters(byte_values: bytes) -> list[bool]:
    """Which bytes are part of a valid UTF-8 character."""
    characters = byte_values.decode("utf-8", "surrogateescape")  # an invalid byte becomes a surrogate
    return [
        not "\ud800" <= character <= "\udfff"
        for character in characters
        for _ in character.encode("utf-8", "surrogateescape")
    ]
