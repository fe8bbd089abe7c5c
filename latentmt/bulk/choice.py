"""Which model a job translates with, and how: what every process of the job has to know to load the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from latentmt.options import DecodingOptions
from latentmt.translator import Translator


@dataclass(frozen=True)
class ModelChoice:
    """The model of a job, and how it translates."""

    name: str | None
    device: str
    engine: str
    options: dict[str, Any]
    """Decoding options that were given."""

    def load(self) -> tuple[Translator, DecodingOptions]:
        translator = Translator.load(self.name, self.device, threads=1, engine=self.engine)
        return translator, translator.options(**self.options)
