"""What requests mean for the broker: who sends them, whether they are accepted, with which options, at what cost.

It knows neither HTTP nor processes. Nothing here looks into texts: that is for the workers.
"""

from __future__ import annotations

import asyncio
import time

from latentmt.errors import UserError
from latentmt.serve.admission import Admission, Client, RefusedError
from latentmt.serve.broker import Broker
from latentmt.serve.documents import Documents
from latentmt.serve.facts import AUTO, ModelFacts
from latentmt.serve.metrics import Metrics
from latentmt.serve.schemas import (
    DetectRequest,
    Language,
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


class Gateway:
    """Accepts requests and returns responses as JSON."""

    def __init__(self, admission: Admission, broker: Broker, metrics: Metrics) -> None:
        self.admission, self.broker, self.metrics = admission, broker, metrics
        self.documents = Documents(admission, broker, metrics)
        self._readiness: asyncio.Task[bool] | None = None
        self._asked = 0.0

    @property
    def facts(self) -> ModelFacts:
        return self.broker.pool.facts

    async def translate(self, request: TranslateRequest, address: str) -> bytes:
        """The response to /translate."""
        client = self.admission.client(address, request.api_key)
        if request.format == "html" and request.alternatives:
            raise UserError("alternatives: there are none with the format html")
        if request.format == "html" and request.alignment:
            raise UserError("alignment: there is none with the format html")
        return await self._translate(request, client)

    async def _translate(self, request: TranslateRequest, client: Client) -> bytes:
        sources = [request.q] if isinstance(request.q, str) else request.q
        self.admission.check_size(sources)
        facts, is_html = self.facts, request.format == "html"
        options = facts.options(decoding_options(request), self.admission.limits, request.alternatives)
        if request.source != AUTO:
            facts.needs_translation(request.source or facts.pair[0], request.target or facts.pair[1])
        self.metrics.characters.inc(sum(map(len, sources)))
        annotated = request.confidence or request.alignment
        seconds = facts.costs.estimate(sources, options, html=is_html or annotated)
        fields = request.model_dump(exclude={"api_key"})
        group = (is_html, request.alternatives, request.confidence, request.alignment)
        return await self.broker.submit("translate", fields, options, client, seconds, group)

    async def trace(self, request: TraceRequest, address: str) -> bytes:
        """The response to /trace."""
        client = self.admission.client(address, request.api_key)
        self.admission.check_size([request.q])
        options = self.facts.options(decoding_options(request), self.admission.limits)
        self.metrics.characters.inc(len(request.q))
        seconds = self.facts.costs.estimate([request.q], options, traced=True)
        fields = request.model_dump(exclude={"api_key"})
        return await self.broker.submit("trace", fields, options, client, seconds, None)

    async def detect(self, request: DetectRequest, address: str) -> bytes:
        """The response to /detect."""
        client = self.admission.client(address, request.api_key)
        self.admission.check_size([request.q])
        fields = request.model_dump(exclude={"api_key"})
        return await self.broker.submit(
            "detect", fields, self.facts.options({}, self.admission.limits), client, 0.0, None
        )

    def languages(self) -> list[Language]:
        """The response to /languages."""
        return self.facts.languages()

    def model(self) -> ModelResponse:
        """The response to /model."""
        return self.facts.response(self.admission.limits, self.admission.requires_key)

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
