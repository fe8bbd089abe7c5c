"""What the broker knows of a model, which only the workers have loaded: languages, methods, limits of options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, cast

from latentmt.errors import UserError
from latentmt.options import Abilities, DecodingOptions, Rerank
from latentmt.serve.admission import Limits
from latentmt.serve.costs import Costs, costs_from
from latentmt.serve.schemas import ModelResponse, decoding_options
from latentmt.translator import Translator

Pair = tuple[str, str]
"""The codes of a source and a target language."""
AUTO = "auto"
"""The source language that is to be detected."""


@dataclass(frozen=True)
class ModelFacts:
    """A model, as plain data."""

    pair: Pair
    abilities: Abilities
    hints: Mapping[str, str]
    latent_dim: int | None
    on_gpu: bool
    costs: Costs

    @staticmethod
    def of(translator: Translator, costs: Costs) -> ModelFacts:
        """Those of a loaded model."""
        backend = translator.backend
        pair = languages_of(translator)
        return ModelFacts(pair, translator.abilities, backend.hints, backend.latent_dim, backend.on_gpu, costs)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> ModelFacts:
        """The inverse of `to_dict`."""
        abilities = dict(data["abilities"])
        if abilities["default_options"] is not None:
            abilities["default_options"] = DecodingOptions(**abilities["default_options"])
        return ModelFacts(
            **{
                **data,
                "pair": tuple(data["pair"]),
                "abilities": Abilities(**abilities),
                "costs": costs_from(data["costs"]),
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @cached_property
    def _default(self) -> DecodingOptions:
        """Valid options; checking them takes longer than the rest of a request's options."""
        return self.abilities.options({})

    def options(self, given: Mapping[str, Any], limits: Limits, alternatives: int = 0) -> DecodingOptions:
        """The options that a request means. More than the server allows is an error."""
        options = self.abilities.options(given) if given else self._default
        for name, count, limit in (
            ("steps", options.steps, limits.max_steps),
            ("candidates (lengths × samples)", options.candidates, limits.max_candidates),
        ):
            if count > limit:
                raise UserError(f"{count} {name}: this server allows {limit}")
        if not alternatives or options.method == "teacher":  # which has only one
            return options
        chosen = options.candidates > 1 and given.keys() & {"lengths", "samples"}
        if chosen or options.candidates > alternatives:
            return options
        reranker = next(name for name in (options.rerank, *self.abilities.rerankers) if name != "none")
        lengths = min(alternatives + 1, limits.max_candidates // options.samples)
        return replace(options, lengths=max(lengths, options.lengths), rerank=cast(Rerank, reranker))

    def response(self, limits: Limits, keys: bool) -> ModelResponse:
        """The response to /model."""
        options = self._default
        return ModelResponse(
            source=self.pair[0],
            target=self.pair[1],
            methods=list(self.abilities.methods),
            hints=dict(self.hints),
            reranks=list(self.abilities.rerankers),
            default=str(options),
            default_options=decoding_options(options),
            method=options.method,
            dimensions=self.latent_dim,
            characters=limits.max_characters,
            candidates=limits.max_candidates,
            steps=limits.max_steps,
            keys=keys,
        )


def languages_of(translator: Translator) -> Pair:
    """The languages of a model, or codes for unknown ones."""
    return translator.languages or ("und", "und-x-target")
