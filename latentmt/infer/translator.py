"""Text in, text out: the one path from a sentence to its translation.

A translator holds what was found in a folder of bundles: a latent model with the fields trained on it, a teacher, or
both. It normalises, tokenizes, batches by length, translates and detokenizes; order and count of the texts are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np
import torch

from latentmt.bundle import Bundle, Kind, load_bundle
from latentmt.data.batches import padded_batches
from latentmt.data.normalise import TextRules, normalise
from latentmt.data.tokenizer import Tokenizer
from latentmt.data.tokens import Tokens
from latentmt.errors import UserError
from latentmt.infer.beam import BeamConfig, beam_search
from latentmt.infer.postprocess import without_repeats, without_special
from latentmt.infer.refine import delta_field, net_field
from latentmt.infer.search import MakeField, translate_tokens
from latentmt.models.fields import EnergyNet, ScoreNet
from latentmt.models.latent import LatentModel
from latentmt.models.teacher import Teacher

Method = Literal["prior", "delta", "score", "energy", "teacher"]
METHODS: tuple[Method, ...] = ("prior", "delta", "score", "energy", "teacher")


def default_method(methods: Sequence[Method]) -> Method:
    """The one to use when none is asked for."""
    return next(method for method in ("score", "energy", "delta", "teacher") if method in methods)


BATCH_TOKENS = 4096
"""Source tokens translated together, padding counted."""
LONGEST = 512
"""The longest target in tokens."""


@dataclass(frozen=True)
class How:
    """How to translate."""

    method: Method = "score"
    """What refines: nothing (`prior`), `delta`, `score` or `energy`; or the autoregressive `teacher`."""
    steps: int = 1
    """Refinement steps."""
    beam: int = 4
    """The teacher's; 1 is greedy."""

    def __str__(self) -> str:
        if self.method == "teacher":
            return f"teacher beam {self.beam}"
        return "L=0" if self.method == "prior" else f"{self.method}-{self.steps}"


@dataclass(frozen=True)
class Translation:
    """A translated text."""

    text: str
    ids: list[int]
    """As decoded, before repetitions were removed; without special pieces."""


class Translator:
    """Networks, and the text rules that belong to them."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        rules: tuple[TextRules, TextRules],
        *,
        latent: LatentModel | None = None,
        fields: dict[str, ScoreNet | EnergyNet] | None = None,
        teacher: Teacher | None = None,
        fingerprints: dict[str, str] | None = None,
    ) -> None:
        self.tokenizer, self.rules = tokenizer, rules
        self.latent, self.fields, self.teacher = latent, fields or {}, teacher
        self.fingerprints = fingerprints or {}
        """Which models these are, where they come from bundles."""
        self.device = next((latent or cast(Teacher, teacher)).parameters()).device

    @staticmethod
    def load(folder: Path, device: torch.device | str = "cpu") -> Translator:
        """Load the bundles of a folder: `latent`, `score`, `energy`, `teacher`, as many as there are."""
        kinds: tuple[Kind, ...] = ("latent", "score", "energy", "teacher")
        found: dict[str, Bundle] = {
            kind: load_bundle(folder / kind, device, kind) for kind in kinds if (folder / kind / "format.json").exists()
        }
        if "latent" not in found and "teacher" not in found:
            raise UserError(f"{folder}: no model (neither latent/ nor teacher/ holds a bundle)")
        fields = {name: found[name] for name in ("score", "energy") if name in found}
        for name, bundle in fields.items():
            if "latent" not in found or bundle.about.latent != found["latent"].about.fingerprint:
                raise UserError(f"{folder / name}: was trained on another latent model than {folder / 'latent'}")
        first = found.get("latent") or found["teacher"]
        for part, other in found.items():
            if other.tokenizer.fingerprint != first.tokenizer.fingerprint:
                raise UserError(f"{folder / part}: has another tokenizer than {folder / 'latent'}")
        return Translator(
            first.tokenizer,
            first.config.rules,
            latent=cast(LatentModel, found["latent"].network) if "latent" in found else None,
            fields={name: cast(ScoreNet | EnergyNet, bundle.network) for name, bundle in fields.items()},
            teacher=cast(Teacher, found["teacher"].network) if "teacher" in found else None,
            fingerprints={name: bundle.about.fingerprint for name, bundle in found.items()},
        )

    @property
    def methods(self) -> list[Method]:
        """What this translator can do."""
        having = {"prior": self.latent, "delta": self.latent, "teacher": self.teacher} | self.fields
        return [method for method in METHODS if having.get(method) is not None]

    def translate(self, texts: Sequence[str], how: How) -> list[Translation]:
        """Translate each text as one sentence."""
        decode = self._decoder(how)
        sources = self.tokenizer.encode([normalise(_valid(text), self.rules[0]) for text in texts])
        targets: list[list[int]] = [[] for _ in texts]
        for group in padded_batches(np.array([len(ids) for ids in sources], dtype=np.int64), BATCH_TOKENS):
            batch = Tokens.padded([sources[index] for index in group]).to(self.device)
            for index, ids in zip(group, decode(batch), strict=True):
                targets[index] = without_special(ids)
        decoded = self.tokenizer.decode([without_repeats(ids) for ids in targets])
        # What a model spells in bytes may be a line feed; normalised, a translation is one line.
        return [Translation(normalise(text, self.rules[1]), ids) for text, ids in zip(decoded, targets, strict=True)]

    def _decoder(self, how: How) -> Callable[[Tokens], list[list[int]]]:
        if how.method not in self.methods:
            raise UserError(f"method {how.method}: this model has only {', '.join(self.methods)}")
        if how.method == "teacher":
            teacher, config = cast(Teacher, self.teacher), BeamConfig(beam=how.beam)
            return lambda batch: [list(best.ids) for best in beam_search(teacher, batch, config)]
        latent, make_field = cast(LatentModel, self.latent), self._field(how.method)
        return lambda batch: translate_tokens(latent, batch, make_field, how.steps, LONGEST).ids.tolist()

    def _field(self, method: Method) -> MakeField | None:
        if method == "prior":
            return None
        if method == "delta":
            latent = cast(LatentModel, self.latent)
            return lambda source, layout: delta_field(latent, source, layout)
        net = self.fields[method]
        return lambda source, layout: net_field(net, source, layout)


def _valid(text: str) -> str:
    """The text without halves of characters, which cannot be written as UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")
