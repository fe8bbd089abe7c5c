"""Answers questions: what is allowed, which texts need translating, how, and in what form they come back.

It knows neither HTTP nor sockets; every text goes through the batcher.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from latentmt.engines.backend import CheckCancelled
from latentmt.errors import UserError
from latentmt.options import RERANKS, DecodingOptions
from latentmt.serve.batcher import Batcher
from latentmt.serve.keys import Keys
from latentmt.serve.languages import Guess, detect, name
from latentmt.serve.limits import Limits, TooMuchError, work
from latentmt.serve.markup import Document
from latentmt.serve.metrics import Metrics
from latentmt.serve.questions import (
    Choices,
    Detected,
    Language,
    Model,
    Traced,
    TraceQuestion,
    Translated,
    TranslateQuestion,
)
from latentmt.serve.tracing import Tracing
from latentmt.text.sentences import split_line
from latentmt.translator import Translator

AUTO = "auto"
_SURE = 90.0
"""Per cent from which on a detected language is acted upon; below, a text is taken for what the model reads."""


@dataclass(frozen=True)
class Alternatives:
    """Several translations of each text."""

    most: int

    def __call__(
        self, translator: Translator, texts: Sequence[str], options: DecodingOptions, check_cancelled: CheckCancelled
    ) -> list[list[str]]:
        return translator.alternatives(texts, options, self.most, check_cancelled)


def translate(
    translator: Translator, texts: Sequence[str], options: DecodingOptions, check_cancelled: CheckCancelled
) -> list[str]:
    """The translation of each text."""
    return [translation.text for translation in translator.translations(texts, options, check_cancelled)]


def align(
    translator: Translator, texts: Sequence[str], options: DecodingOptions, check_cancelled: CheckCancelled
) -> list[Aligned]:
    """The same, with links."""
    return translator.aligned(texts, options, check_cancelled)


class Service:
    """Answers questions with translators that all hold the same model."""

    def __init__(self, translators: Sequence[Translator], limits: Limits, keys: Keys | None = None) -> None:
        self.translator, self.limits, self.keys = translators[0], limits, keys
        self.metrics = Metrics()
        self.batcher = Batcher(translators, limits, self.metrics)
        self.pair = self.translator.languages or ("und", "und-x-target")
        """The codes of the language that is read and of the one that is written."""

    async def translated(self, asked: TranslateQuestion) -> Translated:
        """The answer to /translate. A text that is in the target language already is its own translation."""
        self._allow(asked.api_key)
        html = asked.format == "html"
        if html and asked.alternatives:
            raise UserError("alternatives: there are none with the format html")
        sources = [asked.q] if isinstance(asked.q, str) else asked.q
        self._check_size(sources)
        documents = await asyncio.to_thread(lambda: [Document(source) for source in sources]) if html else []
        texts = [" ".join(document.texts) for document in documents] if html else sources
        guesses = await self._languages(texts, asked.source or self.pair[0])
        wanted = [self._translates(guess.language, asked.target or self.pair[1]) for guess in guesses]
        if html:
            found = iter(await self._html(list(itertools.compress(documents, wanted)), self._how(asked)))
        else:
            found = iter(await self._found(list(itertools.compress(texts, wanted)), asked))
        each = [next(found) if want else [source] for source, want in zip(sources, wanted, strict=True)]
        detected = [Detected(language=guess.language, confidence=guess.confidence) for guess in guesses]
        several = not isinstance(asked.q, str)
        answer = Translated(translatedText=[some[0] for some in each] if several else each[0][0])
        if asked.source == AUTO:
            answer.detectedLanguage = detected if several else detected[0]
        if asked.alternatives:
            answer.alternatives = [some[1:] for some in each] if several else each[0][1:]
        return answer

    async def traced(self, asked: TraceQuestion) -> Traced:
        """The answer to /trace."""
        self._allow(asked.api_key)
        options = self._how(asked)
        if options.method == "teacher":
            raise UserError("there are no refinement steps in what the teacher does")
        self._check([asked.q], options, traced=True)
        (sentences,) = await self.batcher.run(Tracing(asked.sentence, asked.token), [asked.q], options, traced=True)
        return Traced(options=str(options), sentences=sentences)

    def detected(self, text: str, key: str) -> list[Detected]:
        """The answer to /detect."""
        self._allow(key)
        self._check_size([text])
        return [Detected(language=guess.language, confidence=guess.confidence) for guess in detect(text)]

    def languages(self) -> list[Language]:
        """The answer to /languages."""
        reads, writes = self.pair
        return [
            Language(code=reads, name=name(reads), targets=[writes]),
            Language(code=writes, name=name(writes), targets=[]),
        ]

    def model(self) -> Model:
        """The answer to /model."""
        options = self.translator.options()
        return Model(
            source=self.pair[0],
            target=self.pair[1],
            methods=self.translator.methods,
            reranks=[one for one in RERANKS if one != "teacher" or self.translator.teacher],
            default=str(options),
            method=options.method,
            dimensions=self.translator.latent.latent_dim if self.translator.latent else None,
            characters=self.limits.characters,
            candidates=self.limits.candidates,
            steps=self.limits.steps,
            keys=self.keys is not None,
        )

    async def _found(self, texts: Sequence[str], asked: TranslateQuestion) -> Sequence[list[str]]:
        """The translations of each text: the one that is kept, and others where they are wanted."""
        options = self._with_others(asked) if asked.alternatives else self._how(asked)
        self._check(texts, options)
        if not asked.alternatives:
            return [[text] for text in await self.batcher.run(translate, texts, options)]
        found: Sequence[list[str]] = await self.batcher.run(Alternatives(asked.alternatives + 1), texts, options)
        return found

    async def _html(self, documents: Sequence[Document], options: DecodingOptions) -> Sequence[list[str]]:
        """The same of documents."""
        texts = [text for document in documents for text in document.texts]
        self._check(texts, options)
        return await asyncio.to_thread(_written, documents, await self.batcher.run(align, texts, options))

    async def _languages(self, texts: Sequence[str], source: str) -> list[Guess]:
        """The language of each text; finding it out takes a while."""
        if source != AUTO:
            return [Guess(source, 100.0)] * len(texts)
        return await asyncio.to_thread(lambda: [self._language(text) for text in texts])

    def _language(self, text: str) -> Guess:
        """The language that a text looks like; in doubt, the one that the model reads."""
        likeliest = detect(text)[0]
        if likeliest.confidence >= _SURE:
            return likeliest
        guesses = {guess.language: guess for guess in detect(text, self.pair)}
        reads, writes = (guesses.get(code, Guess(code, 0.0)) for code in self.pair)
        return writes if writes.confidence >= _SURE else reads

    def _translates(self, source: str, target: str) -> bool:
        """Whether there is anything to do, if it can be done."""
        if source == target and source in self.pair:
            return False
        if (source, target) != self.pair:
            asked, able = (" to ".join(map(name, pair)) for pair in ((source, target), self.pair))
            raise UserError(f"{asked}: this server translates {able}")
        return True

    def _allow(self, key: str) -> None:
        if self.keys:
            self.keys.take(key)

    def _how(self, choices: Choices) -> DecodingOptions:
        """How to translate, if that is allowed."""
        options = self.translator.options(**choices.given())
        for what, count, most in (
            ("steps", options.steps, self.limits.steps),
            ("candidates (lengths × samples)", options.candidates, self.limits.candidates),
        ):
            if count > most:
                raise UserError(f"{count} {what}: this server allows {most}")
        return options

    def _with_others(self, asked: TranslateQuestion) -> DecodingOptions:
        """How to translate so that there are other candidates, too. The teacher has none."""
        options = self._how(asked)
        if options.method == "teacher" or options.candidates > 1:
            return options
        lengths = min(asked.alternatives + 1, self.limits.candidates)
        return replace(options, lengths=lengths, rerank="teacher" if self.translator.teacher else "decoder")

    def _check(self, texts: Sequence[str], options: DecodingOptions, traced: bool = False) -> None:
        """Refuse what is too much for one request."""
        self._check_size(texts)
        sentences = sum(max(1, len(split_line(text, lambda _: True).parts)) for text in texts)
        self._check_sentences(sentences)
        if work(texts, options, traced) > self.limits.request:
            raise TooMuchError("this is too much for one request: fewer characters, candidates or steps")

    def _check_size(self, texts: Sequence[str]) -> None:
        """The same, as far as it is known without looking at them."""
        self._check_sentences(len(texts))
        characters = sum(map(len, texts))
        if characters > self.limits.characters:
            raise TooMuchError(f"{characters:,} characters: this server allows {self.limits.characters:,}")

    def _check_sentences(self, sentences: int) -> None:
        if sentences > self.limits.sentences:
            raise TooMuchError(f"{sentences:,} sentences: this server allows {self.limits.sentences:,}")


def _written(documents: Sequence[Document], aligned: Sequence[Aligned]) -> list[list[str]]:
    """Documents with their translations."""
    each = iter(aligned)
    return [[document.written(list(itertools.islice(each, len(document.texts))))] for document in documents]
