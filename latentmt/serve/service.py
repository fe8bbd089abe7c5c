"""Computes the responses: which texts need translation, with which options, and in what form they are returned.

It knows neither HTTP nor sockets. Every text goes through the batcher.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from latentmt.engines.backend import CheckCancelled
from latentmt.errors import UserError
from latentmt.options import DecodingOptions, Rerank
from latentmt.results import Translation
from latentmt.serve.admission import Admission
from latentmt.serve.batcher import Batcher
from latentmt.serve.languages import detect, language_name
from latentmt.serve.markup import Document
from latentmt.serve.metrics import Metrics
from latentmt.serve.schemas import (
    BaseRequest,
    DetectedLanguage,
    DetectRequest,
    Language,
    ModelResponse,
    TraceRequest,
    TraceResponse,
    TranslateRequest,
    TranslateResponse,
    decoding_options,
)
from latentmt.serve.tracing import TraceTask
from latentmt.translator import Translator

AUTO = "auto"
_MIN_CONFIDENCE = 90.0
"""Per cent from which on a detected language is trusted. Below, a text is taken to be in the model's language."""


@dataclass(frozen=True)
class TranslateTask:
    """Translates texts, with up to so many alternatives, or with their alignment."""

    alternatives: int = 0
    alignment: bool = False

    def __call__(
        self, translator: Translator, texts: Sequence[str], options: DecodingOptions, check_cancelled: CheckCancelled
    ) -> list[Translation]:
        return translator.translations(
            texts, options, alternatives=self.alternatives, alignment=self.alignment, check_cancelled=check_cancelled
        )


class Service:
    """Computes the responses with translators that all hold the same model."""

    def __init__(self, translators: Sequence[Translator], admission: Admission) -> None:
        self.translator, self.admission = translators[0], admission
        self.metrics = Metrics()
        self.batcher = Batcher(translators, admission, self.metrics)
        self.pair = self.translator.languages or ("und", "und-x-target")
        """The codes of the source and the target language."""

    async def translate(self, request: TranslateRequest) -> TranslateResponse:
        """The response to /translate: a list for a list of texts. Texts in the target language are returned as is."""
        self.admission.check_key(request.api_key)
        if request.format == "html" and request.alternatives:
            raise UserError("alternatives: there are none with the format html")
        sources = [request.q] if isinstance(request.q, str) else request.q
        self.admission.check_size(sources)
        results, detected = await self._translate_sources(sources, request)

        def shaped(values: list[Any]) -> Any:
            return values[0] if isinstance(request.q, str) else values

        return TranslateResponse(
            translatedText=shaped([best for best, *_ in results]),
            detectedLanguage=shaped(detected) if request.source == AUTO else None,
            alternatives=shaped([others for _, *others in results]) if request.alternatives else None,
        )

    async def trace(self, request: TraceRequest) -> TraceResponse:
        """The response to /trace."""
        self.admission.check_key(request.api_key)
        options = self._options(request)
        tokens = self.admission.check_work([request.q], options, traced=True)
        task = TraceTask(request.sentence, request.token)
        (sentences,) = await self.batcher.run(task, [request.q], options, tokens)
        return TraceResponse(options=str(options), sentences=sentences)

    def detect(self, request: DetectRequest) -> list[DetectedLanguage]:
        """The response to /detect."""
        self.admission.check_key(request.api_key)
        self.admission.check_size([request.q])
        return detect(request.q)

    def languages(self) -> list[Language]:
        """The response to /languages."""
        source, target = self.pair
        return [
            Language(code=source, name=language_name(source), targets=[target]),
            Language(code=target, name=language_name(target), targets=[]),
        ]

    def model(self) -> ModelResponse:
        """The response to /model."""
        options, limits = self.translator.options(), self.admission.limits
        return ModelResponse(
            source=self.pair[0],
            target=self.pair[1],
            methods=list(self.translator.methods),
            hints=self.translator.backend.hints,
            reranks=list(self.translator.backend.rerankers),
            default=str(options),
            method=options.method,
            dimensions=self.translator.backend.latent_dim,
            characters=limits.max_characters,
            candidates=limits.max_candidates,
            steps=limits.max_steps,
            keys=self.admission.requires_key,
        )

    async def _translate_sources(
        self, sources: Sequence[str], request: TranslateRequest
    ) -> tuple[list[list[str]], list[DetectedLanguage]]:
        """The best translation of each source, followed by alternatives; and the languages of the sources."""
        is_html = request.format == "html"
        documents = await asyncio.to_thread(lambda: [Document(source) for source in sources]) if is_html else []
        texts = [" ".join(document.texts) for document in documents] if is_html else sources
        detected = await self._languages(texts, request.source or self.pair[0])
        needed = [self._needs_translation(guess.language, request.target or self.pair[1]) for guess in detected]
        if is_html:
            outputs = await self._translate_html(list(itertools.compress(documents, needed)), self._options(request))
        else:
            outputs = await self._translate_texts(list(itertools.compress(texts, needed)), request)
        remaining = iter(outputs)
        return [next(remaining) if need else [source] for source, need in zip(sources, needed, strict=True)], detected

    async def _translate_texts(self, texts: Sequence[str], request: TranslateRequest) -> Sequence[list[str]]:
        """The best translation of each text, followed by alternatives if they are requested."""
        options = self._options(request)
        if request.alternatives:
            options = self._with_candidates(options, request.alternatives + 1)
        tokens = self.admission.check_work(texts, options)
        results = await self.batcher.run(TranslateTask(request.alternatives), texts, options, tokens)
        return [[result.text, *result.alternatives] for result in results]

    async def _translate_html(self, documents: Sequence[Document], options: DecodingOptions) -> Sequence[list[str]]:
        """The translation of each document."""
        texts = [text for document in documents for text in document.texts]
        tokens = self.admission.check_work(texts, options)
        results = await self.batcher.run(TranslateTask(alignment=True), texts, options, tokens)
        return await asyncio.to_thread(_write, documents, results)

    async def _languages(self, texts: Sequence[str], source: str) -> list[DetectedLanguage]:
        """The language of each text. Detection takes a while, so it runs in a thread."""
        if source != AUTO:
            return [DetectedLanguage(language=source, confidence=100)] * len(texts)
        return await asyncio.to_thread(lambda: [self._language(text) for text in texts])

    def _language(self, text: str) -> DetectedLanguage:
        """The detected language of a text; if that is uncertain, the model's source language."""
        likeliest = detect(text)[0]
        if likeliest.confidence >= _MIN_CONFIDENCE:
            return likeliest
        guesses = {guess.language: guess for guess in detect(text, self.pair)}
        source, target = (guesses.get(code, DetectedLanguage(language=code, confidence=0)) for code in self.pair)
        return target if target.confidence >= _MIN_CONFIDENCE else source

    def _needs_translation(self, source: str, target: str) -> bool:
        """Whether a text must be translated. Refuses a pair of languages that the model does not have."""
        if source == target and source in self.pair:
            return False
        if (source, target) != self.pair:
            requested, available = (" to ".join(map(language_name, pair)) for pair in ((source, target), self.pair))
            raise UserError(f"{requested}: this server translates {available}")
        return True

    def _options(self, request: BaseRequest) -> DecodingOptions:
        options = self.translator.options(**decoding_options(request))
        self.admission.check_options(options)
        return options

    def _with_candidates(self, options: DecodingOptions, count: int) -> DecodingOptions:
        """Options that give several candidates. The teacher has only one."""
        if options.method == "teacher" or options.candidates > 1:
            return options
        reranker = next(name for name in self.translator.backend.rerankers if name != "none")
        lengths = min(count, self.admission.limits.max_candidates)
        return replace(options, lengths=lengths, rerank=cast(Rerank, reranker))


def _write(documents: Sequence[Document], translations: Sequence[Translation]) -> list[list[str]]:
    """Documents with their translations."""
    remaining = iter(translations)
    return [[document.render(list(itertools.islice(remaining, len(document.texts))))] for document in documents]
