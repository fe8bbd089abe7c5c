"""Computes the responses of a model in a worker: which texts need translation, with which options, in what form.

Everything whose time grows with a text is done here, in steps between which others may be served: reading HTML,
detecting languages, splitting, encoding, translating, writing. It knows neither HTTP nor processes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

from pydantic import BaseModel, Field

from latentmt.documents.markup import Document
from latentmt.engines.backend import CheckCancelled
from latentmt.errors import UserError
from latentmt.options import DecodingOptions
from latentmt.results import Translation
from latentmt.serve import conversion
from latentmt.serve.admission import Limits, RefusedError
from latentmt.serve.conversion import PartRequest, ReadRequest, ReadResponse, RenderRequest
from latentmt.serve.detection import evident_language, source_language, warning
from latentmt.serve.facts import AUTO, Pair
from latentmt.serve.languages import detect
from latentmt.serve.models import Models
from latentmt.serve.schemas import (
    DetectedLanguage,
    DetectRequest,
    TraceRequest,
    TraceResponse,
    TranslateRequest,
    TranslateResponse,
)
from latentmt.serve.tracing import trace_text
from latentmt.text.segments import SegmentedText
from latentmt.translator import Translator


class DetectedRequest(TranslateRequest):
    """Texts whose languages decided which model translates them."""

    detected: Annotated[list[DetectedLanguage], Field(default_factory=list)]


class SourcesRequest(BaseModel):
    """Texts whose languages are to decide which model translates them."""

    q: list[str]
    target: str
    format: str = "text"


Request = TranslateRequest | TraceRequest | DetectRequest | SourcesRequest | ReadRequest | PartRequest | RenderRequest
REQUESTS: dict[str, type[Request]] = {
    "translate": DetectedRequest,
    "sources": SourcesRequest,
    "trace": TraceRequest,
    "detect": DetectRequest,
    "read": ReadRequest,
    "part": PartRequest,
    "render": RenderRequest,
}


@dataclass
class Plan:
    """A request that is understood: its texts are split and encoded, and its cost is known."""

    request: Request
    seconds: float = 0.0
    """How long it will take."""
    detected: list[DetectedLanguage] = field(default_factory=list)
    evident: list[DetectedLanguage | None] = field(default_factory=list)
    """The languages of the sources that are evidently in another one than the request says, if that was looked at."""
    needed: list[bool] = field(default_factory=list)
    """Which sources are translated."""
    documents: list[Document] = field(default_factory=list)
    """The sources that are, if they are HTML."""
    segmented: list[SegmentedText] = field(default_factory=list)


class Service:
    """Computes responses with the translator from one language to another, which is one of the server's `models`.

    Only for one thread at a time.
    """

    def __init__(self, translator: Translator, pair: Pair, models: Models, limits: Limits) -> None:
        self._translator, self._pair, self._models, self._limits = translator, pair, models, limits
        self._costs = models.find(*pair).costs
        self.batch_seconds = self._costs.batch_seconds

    def plan(self, request: Request, options: DecodingOptions, check: CheckCancelled) -> Plan:
        """Understand a request, and refuse one that is too much work (413)."""
        plan = Plan(request)
        if isinstance(request, TranslateRequest):
            self._plan_translation(plan, request, options, check)
        elif isinstance(request, TraceRequest):
            if options.method == "teacher":
                raise UserError("the teacher has no refinement steps to trace")
            lengths = [len(ids) for ids in self._translator.sentences(request.q)]
            self._set_cost(plan, lengths, options, len(request.q), traced=True)
        elif isinstance(request, PartRequest):
            texts = conversion.read_texts(request)
            plan.segmented = self._translator.segmented(texts, options, check)
            lengths = [len(segment.ids) for text in plan.segmented for segment in text.translated]
            plan.seconds = self._costs.seconds(lengths, options, sum(map(len, texts)), html=request.inline)
            if plan.seconds > self._limits.timeout:
                raise RefusedError(413, "a paragraph of this document is too long for this server")
        return plan

    def run(
        self, plans: Sequence[Plan], options: DecodingOptions, check: CheckCancelled
    ) -> Iterator[BaseModel | list[Any]]:
        """The responses to requests of the same kind, with the same options. Texts are translated together."""
        translations = iter(self._translated(plans, options, check))
        for plan in plans:
            check()
            match plan.request:
                case TranslateRequest() as request:
                    texts = list(itertools.islice(translations, len(plan.segmented)))
                    yield _translate_response(request, plan, texts)
                case TraceRequest() as request:
                    sentences = trace_text(self._translator, request.q, options, check, request.sentence, request.token)
                    yield TraceResponse(options=str(options), sentences=sentences)
                case DetectRequest() as request:
                    yield detect(request.q)
                case SourcesRequest() as request:
                    read = _texts(request.q, _documents(request.q, request.format, check))
                    yield self._languages(read, request.target, check)
                case ReadRequest() as request:
                    yield self._read(request, check)
                case PartRequest() as request:
                    done = list(itertools.islice(translations, len(plan.segmented)))
                    conversion.write_translations(request, done)
                    yield []
                case RenderRequest() as request:
                    conversion.render(request, check)
                    yield []

    def _translated(
        self, plans: Sequence[Plan], options: DecodingOptions, check: CheckCancelled
    ) -> Sequence[Translation]:
        first = plans[0].request
        if isinstance(first, PartRequest):
            texts = [text for plan in plans for text in plan.segmented]
            return self._translator.translate_segmented(texts, options, alignment=first.inline, check_cancelled=check)
        if not isinstance(first, TranslateRequest):
            return []
        return self._translator.translate_segmented(
            [text for plan in plans for text in plan.segmented],
            options,
            alternatives=first.alternatives,
            alignment=first.alignment or first.format == "html",
            details=first.confidence,
            check_cancelled=check,
        )

    def _plan_translation(
        self, plan: Plan, request: TranslateRequest, options: DecodingOptions, check: CheckCancelled
    ) -> None:
        sources = [request.q] if isinstance(request.q, str) else request.q
        documents = _documents(sources, request.format, check)
        texts = _texts(sources, documents)
        source, target = request.source or self._pair[0], request.target or self._pair[1]
        if isinstance(request, DetectedRequest) and request.detected:
            plan.detected = request.detected
        elif source == AUTO:
            plan.detected = self._languages(texts, target, check)
        else:
            plan.detected = [DetectedLanguage(language=source, confidence=100) for _ in texts]
        if request.confidence and source != AUTO:
            for text in texts:
                check()
                plan.evident.append(evident_language(text, source))
        plan.needed = [self._models.needs_translation(guess.language, target) for guess in plan.detected]
        plan.documents = list(itertools.compress(documents, plan.needed))
        needed = [text for document in plan.documents for text in document.texts]
        plan.segmented = self._translator.segmented(
            needed if documents else list(itertools.compress(sources, plan.needed)), options, check
        )
        self._check_sentences(sum(max(1, len(text.segments)) for text in plan.segmented))
        lengths = [len(segment.ids) for text in plan.segmented for segment in text.translated]
        annotated = bool(documents) or request.confidence or request.alignment
        self._set_cost(
            plan,
            lengths,
            options,
            sum(map(len, sources)),
            html=annotated,
        )

    def _read(self, request: ReadRequest, check: CheckCancelled) -> ReadResponse:
        """Read a document, and store its texts in parts."""
        parts, inline = conversion.read(request, self._limits, check)
        conversion.write_texts(request.folder, parts)
        language = request.source
        if language == AUTO:
            text = " ".join(text for part in parts[:1] for text in part)
            language = source_language(text, request.target, self._models).language
        return ReadResponse(
            parts=list(map(len, parts)),
            characters=[sum(map(len, part)) for part in parts],
            inline=inline,
            language=language,
        )

    def _set_cost(
        self,
        plan: Plan,
        lengths: Sequence[int],
        options: DecodingOptions,
        characters: int,
        html: bool = False,
        traced: bool = False,
    ) -> None:
        self._check_sentences(len(lengths))
        plan.seconds = self._costs.seconds(lengths, options, characters, html, traced)
        if plan.seconds > self._limits.timeout:
            raise RefusedError(413, "this is too much for one request: fewer characters, candidates or steps")

    def _check_sentences(self, sentences: int) -> None:
        if sentences > self._limits.max_sentences:
            raise RefusedError(413, f"{sentences:,} sentences: this server allows {self._limits.max_sentences:,}")

    def _languages(self, texts: Sequence[str], target: str, check: CheckCancelled) -> list[DetectedLanguage]:
        """The languages of texts that are to be translated into the target."""
        found = []
        for text in texts:
            check()
            found.append(source_language(text, target, self._models))
        return found


def _documents(sources: Sequence[str], format_: str, check: CheckCancelled) -> list[Document]:
    """Texts as documents, if they are HTML."""
    documents = []
    for source in sources if format_ == "html" else ():
        check()
        documents.append(Document(source))
    return documents


def _texts(sources: Sequence[str], documents: Sequence[Document]) -> Sequence[str]:
    """What is read of texts, without tags."""
    return [" ".join(document.texts) for document in documents] if documents else sources


def _translate_response(
    request: TranslateRequest, plan: Plan, translations: Sequence[Translation]
) -> TranslateResponse:
    """The response to /translate: a list for a list of texts. Texts in the target language are returned as is."""
    sources = [request.q] if isinstance(request.q, str) else request.q
    results = iter(_written(plan, translations))
    same = Translation("")
    all_ = [
        next(results) if need else replace(same, text=source) for source, need in zip(sources, plan.needed, strict=True)
    ]

    def shaped(values: list[Any]) -> Any:
        return values[0] if isinstance(request.q, str) else values

    def if_(wanted: bool, values: Callable[[Translation], Any]) -> Any:
        return shaped([values(one) for one in all_]) if wanted else None

    warned = any(plan.evident)
    languages = [found or stated for found, stated in zip(plan.evident, plan.detected, strict=True)] if warned else []
    return TranslateResponse(
        translatedText=shaped([one.text for one in all_]),
        detectedLanguage=shaped(languages or plan.detected) if warned or request.source == AUTO else None,
        alternatives=if_(bool(request.alternatives), lambda one: one.alternatives),
        confidence=if_(request.confidence, lambda one: one.confidence),
        tokens=if_(request.confidence, lambda one: [asdict(token) for token in one.tokens]),
        alignment=if_(request.alignment, lambda one: [asdict(link) for link in one.alignment]),
        sentences=if_(
            request.alignment, lambda one: [{"source": pair[0], "target": pair[1]} for pair in one.sentences]
        ),
        warning=shaped([warning(found, stated) for found, stated in zip(plan.evident, plan.detected, strict=True)])
        if warned
        else None,
    )


def _written(plan: Plan, translations: Sequence[Translation]) -> Iterator[Translation]:
    """The translation of each source that needs one."""
    if not plan.documents:
        yield from translations
    remaining = iter(translations)
    for document in plan.documents:
        parts = list(itertools.islice(remaining, len(document.texts)))
        yield Translation(document.render(parts), tokens=[token for part in parts for token in part.tokens])
