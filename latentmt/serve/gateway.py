"""What requests mean for the broker: who sends them, whether they are accepted, by which model, at what cost.

It knows neither HTTP nor processes. Nothing here looks into texts: that is for the workers.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from latentmt.errors import UserError
from latentmt.serve.admission import Admission, Client, RefusedError
from latentmt.serve.broker import Broker, Work
from latentmt.serve.documents import Documents
from latentmt.serve.facts import ModelFacts, Pair
from latentmt.serve.metrics import Counting, Metrics
from latentmt.serve.models import Models
from latentmt.serve.schemas import (
    DetectedLanguage,
    DetectRequest,
    ModelResponse,
    TraceRequest,
    TranslateRequest,
    decoding_options,
)

_READY_SECONDS = 5.0
"""A server is ready if a worker translates a word within this time."""
_READY_INTERVAL = 1.0
"""Seconds for which that is not asked again."""
_WORD = "Test."


@runtime_checkable
class Queue(Protocol):
    """The broker, wherever it is. See `Broker`."""

    @property
    def models(self) -> Models: ...

    def check_room(self, client: str) -> None: ...

    async def admit(self, address: str, key: str) -> Client: ...

    async def submit(self, work: Work, fields: dict[str, Any]) -> bytes: ...


class TextGateway:
    """Accepts requests with texts and returns responses as JSON."""

    def __init__(self, admission: Admission, broker: Queue, metrics: Counting) -> None:
        self.admission, self.broker, self.metrics = admission, broker, metrics

    @property
    def models(self) -> Models:
        return self.broker.models

    async def translate(self, request: TranslateRequest, address: str) -> bytes:
        """The response to /translate."""
        client = await self.broker.admit(address, request.api_key)
        if request.format == "html" and request.alternatives:
            raise UserError("alternatives: there are none with the format html")
        if request.format == "html" and request.alignment:
            raise UserError("alignment: there is none with the format html")
        return await self._translate(request, client)

    async def _translate(self, request: TranslateRequest, client: Client) -> bytes:
        sources = [request.q] if isinstance(request.q, str) else request.q
        self.admission.check_size(sources)
        candidates = self.models.candidates(request.source, request.target)
        if len(candidates) == 1 or not sources:
            return await self._translate_with(candidates[0], request, client)
        return await self._translate_by_language(candidates, request, client)

    async def _translate_with(
        self, model: ModelFacts, request: TranslateRequest, client: Client, **known: Any
    ) -> bytes:
        sources, is_html = [request.q] if isinstance(request.q, str) else request.q, request.format == "html"
        options = model.options(decoding_options(request), self.admission.limits, request.alternatives)
        self.metrics.accepted(sum(map(len, sources)))
        annotated = request.confidence or request.alignment
        seconds = model.costs.estimate(sources, options, html=is_html or annotated)
        fields = request.model_dump(exclude={"api_key"}) | known
        group = (is_html, request.alternatives, request.confidence, request.alignment)
        return await self.broker.submit(Work("translate", model, options, client, seconds, group), fields)

    async def _translate_by_language(
        self, candidates: Sequence[ModelFacts], request: TranslateRequest, client: Client
    ) -> bytes:
        """Each text by the model for its language."""
        sources = [request.q] if isinstance(request.q, str) else request.q
        detected = await self._detected(candidates[0], sources, request.format, request.target, client)
        parts: dict[tuple[Pair, str], list[int]] = {}
        for number, guess in enumerate(detected):
            source, target = self.models.pair(guess.language, request.target)
            (model,) = self.models.candidates(source, target)
            parts.setdefault((model.pair, target), []).append(number)
        responses = []
        for (pair, target), numbers in parts.items():
            texts = request.q if len(parts) == 1 else [sources[number] for number in numbers]
            part = request.model_copy(update={"q": texts, "target": target})
            known = [detected[number].model_dump() for number in numbers]
            responses.append(await self._translate_with(self.models.find(*pair), part, client, detected=known))
        return responses[0] if len(parts) == 1 else _merged(responses, list(parts.values()))

    async def _detected(
        self, model: ModelFacts, texts: Sequence[str], format_: str, target: str, client: Client
    ) -> list[DetectedLanguage]:
        """The languages of texts. Workers have all models, and any one can tell."""
        options = model.options({}, self.admission.limits)
        seconds = model.costs.seconds([], options, sum(map(len, texts)), html=format_ == "html")
        fields = {"q": list(texts), "target": target, "format": format_}
        found = await self.broker.submit(Work("sources", model, options, client, seconds), fields)
        return [DetectedLanguage(**guess) for guess in json.loads(found)]

    async def trace(self, request: TraceRequest, address: str) -> bytes:
        """The response to /trace."""
        client = await self.broker.admit(address, request.api_key)
        self.admission.check_size([request.q])
        model, *others = self.models.candidates(request.source, request.target)
        if others:
            (guess,) = await self._detected(model, [request.q], "text", request.target, client)
            model = self.models.candidates(guess.language, request.target)[0]
        options = model.options(decoding_options(request), self.admission.limits)
        self.metrics.accepted(len(request.q))
        seconds = model.costs.estimate([request.q], options, traced=True)
        fields = request.model_dump(exclude={"api_key"})
        return await self.broker.submit(Work("trace", model, options, client, seconds), fields)

    async def detect(self, request: DetectRequest, address: str) -> bytes:
        """The response to /detect."""
        client = await self.broker.admit(address, request.api_key)
        self.admission.check_size([request.q])
        model, fields = self.models.default, request.model_dump(exclude={"api_key"})
        options = model.options({}, self.admission.limits)
        return await self.broker.submit(Work("detect", model, options, client, 0.0), fields)


class Gateway(TextGateway):
    """Accepts all requests."""

    broker: Broker
    metrics: Metrics

    def __init__(self, admission: Admission, broker: Broker, metrics: Metrics) -> None:
        super().__init__(admission, broker, metrics)
        self.documents = Documents(admission, broker, metrics)
        self._readiness: asyncio.Task[bool] | None = None
        self._asked = 0.0

    def model(self, source: str = "", target: str = "") -> ModelResponse:
        """The response to /model."""
        return self.models.find(source, target).response(self.admission.limits, self.admission.requires_key)

    async def ready(self) -> bool:
        """Whether a worker translates a word. It is asked once in a while, whoever wants to know."""
        if self._readiness is None or (self._readiness.done() and time.monotonic() - self._asked > _READY_INTERVAL):
            self._asked = time.monotonic()
            self._readiness = asyncio.ensure_future(self._translates_a_word())
        return await asyncio.shield(self._readiness)

    async def _translates_a_word(self) -> bool:
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await self._translate(TranslateRequest(q=_WORD), Client("/readyz"))
        except (RefusedError, TimeoutError, UserError):
            return False
        return True


def _merged(responses: Sequence[bytes], numbers: Sequence[Sequence[int]]) -> bytes:
    """Responses to lists of texts as one, with the texts in their order: each has those with these numbers."""
    merged: dict[str, list[Any]] = {}
    for response, places in zip(responses, numbers, strict=True):
        for name, values in json.loads(response).items():
            whole = merged.setdefault(name, [None] * sum(map(len, numbers)))
            for place, value in zip(places, values, strict=True):
                whole[place] = value
    return json.dumps(merged, ensure_ascii=False).encode()
