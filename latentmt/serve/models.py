"""The models of a server: which of them translates a request, and the languages there are.

It knows neither texts nor processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from latentmt.errors import UserError
from latentmt.serve.costs import Costs
from latentmt.serve.facts import AUTO, ModelFacts, Pair
from latentmt.serve.languages import language_name
from latentmt.serve.schemas import Language


@dataclass(frozen=True)
class Models:
    """At least one model, each for other languages. The first one is used where a request names none."""

    all: Sequence[ModelFacts]

    @property
    def default(self) -> ModelFacts:
        return self.all[0]

    @cached_property
    def pairs(self) -> list[Pair]:
        return [facts.pair for facts in self.all]

    @property
    def costs(self) -> list[Costs]:
        """How long things take with each."""
        return [facts.costs for facts in self.all]

    @property
    def sources(self) -> list[str]:
        return list(dict.fromkeys(source for source, _ in self.pairs))

    @property
    def targets(self) -> list[str]:
        return list(dict.fromkeys(target for _, target in self.pairs))

    def pair(self, source: str = "", target: str = "") -> Pair:
        """The languages that a request means. What it leaves out is that of the first model that has the rest."""
        fitting = (pair for pair in self.pairs if source in ("", pair[0]) and target in ("", pair[1]))
        first = next(fitting, self.default.pair)
        return source or first[0], target or first[1]

    def find(self, source: str = "", target: str = "") -> ModelFacts:
        """The model for these languages. Others are refused, and those that there are are named."""
        pair = self.pair(source, target)
        if pair not in self.pairs:
            available = ", ".join(" to ".join(map(language_name, one)) for one in self.pairs)
            raise UserError(f"{' to '.join(map(language_name, pair))}: this server translates {available}")
        return self.all[self.pairs.index(pair)]

    def candidates(self, source: str, target: str) -> list[ModelFacts]:
        """The models that may translate a request: several if the language of its texts decides between them.

        Texts that are in their target language already may be given to any model that has it.
        """
        if source != AUTO:
            source, target = self.pair(source, target)
        fitting = [one for one in self.all if source in (AUTO, one.pair[0]) and target in ("", one.pair[1])]
        if not fitting and source in (AUTO, target):
            fitting = [one for one in self.all if target in one.pair][:1]
        return fitting or [self.find(source, target)]

    def needs_translation(self, source: str, target: str) -> bool:
        """Whether a text must be translated. Refuses languages that no model has."""
        if source == target and any(source in pair for pair in self.pairs):
            return False
        self.find(source, target)
        return True

    def languages(self) -> list[Language]:
        """The response to /languages."""
        return [
            Language(code=code, name=language_name(code), targets=[to for source, to in self.pairs if source == code])
            for code in dict.fromkeys([*self.sources, *self.targets])
        ]
