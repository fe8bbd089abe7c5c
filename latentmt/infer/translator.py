"""Text in, text out: the one path from a text to its translation.

A translator holds what was found in a folder of bundles: a latent model with the fields trained on it, a teacher, or
both. It takes texts apart into sentences, normalises and encodes them, has them translated, and puts the translations
together again; order and count of the texts are kept, and the white space between sentences. It may be used from
several threads at once.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast, overload

import torch
from jaxtyping import Float
from torch import Tensor

from latentmt.bundle import Bundle, kinds_in, load_bundle
from latentmt.config import load as load_config
from latentmt.data.normalise import TextRules, normalise
from latentmt.data.tokenizer import Tokenizer
from latentmt.device import find_device
from latentmt.errors import UserError
from latentmt.infer.alignment import Link, links
from latentmt.infer.engine import CheckCancelled, Engine, never_cancelled
from latentmt.infer.passages import Done, Part, Passage
from latentmt.infer.postprocess import PieceTable
from latentmt.infer.refine import ADAPTIVE_STEPS
from latentmt.infer.results import Candidate, ranked
from latentmt.infer.search import Networks
from latentmt.infer.sentences import split_line
from latentmt.infer.trace import SentenceTrace, field_around, trace_sentence
from latentmt.infer.verbatim import Sentence, Verbatim
from latentmt.installed import find_model
from latentmt.models.fields import EnergyNet, ScoreNet
from latentmt.models.latent import LatentModel
from latentmt.models.teacher import Teacher
from latentmt.options import METHODS, RERANKS, WAY, DecodingOptions, Method, Rerank, check_names, default_method

MOST_THREADS = 1024
_CORES = torch.get_num_threads()  # as torch found them, before it is told to use fewer

OPTIONS_FILES = ("options.yaml", "how.yaml")
"""Beside a model's bundles: its default options, as measured by whoever made it. The second name is that of 0.1."""


@dataclass(frozen=True)
class Translation:
    """A translated text."""

    text: str
    ids: list[int]
    """The pieces of all its sentences as decoded, before repetitions were removed; without special pieces."""


@dataclass(frozen=True)
class Aligned:
    """A translated text, and which of its characters come from which."""

    text: str
    links: list[Link]


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
        languages: tuple[str, str] | None = None,
        fingerprints: dict[str, str] | None = None,
        longest: int = 64,
        graphed: bool | None = None,
        own: DecodingOptions | None = None,
        workers: int = 1,
    ) -> None:
        self.tokenizer, self.rules = tokenizer, rules
        self.latent, self.fields, self.teacher = latent, fields or {}, teacher
        self.languages = languages
        """Codes of the language it reads and of the one it writes, where they are known."""
        self.fingerprints = fingerprints or {}
        """Which models these are, where they come from bundles."""
        self.longest = longest
        """Tokens of the longest sentence the networks are given, EOS included: they have seen none longer."""
        self._verbatim = Verbatim(tokenizer.placeholders, languages, lowercase=rules[0].lowercase)
        self.own = own
        """The model's own way to translate, where it has one."""
        self.device = next((latent or cast(Teacher, teacher)).parameters()).device
        networks = Networks(latent, self.fields, teacher, PieceTable.of(tokenizer).to(self.device))
        self.engine = Engine(networks, graphed, workers)

    @staticmethod
    def load(
        name: Path | str | None = None,
        device: torch.device | str = "cpu",
        threads: int | None = None,
        dtype: torch.dtype | None = None,
        graphed: bool | None = None,
    ) -> Translator:
        """Load a model: a folder of bundles (`latent`, `score`, `energy`, `teacher`, as many as there are), or the name
        of one that is installed; without a name, the first of those. A file `options.yaml` beside them holds choices of
        `DecodingOptions`: the model's own way to translate.

        `threads` is how many cores a batch may use, for the whole process. If it is None, batches are translated side
        by side, on a core of a CPU each: two threads of one batch wait for each other, and who else is at work makes
        them wait long.
        Weights are taken as `dtype`, by default bfloat16 on a GPU and float32 on a CPU. `graphed` is the engine's.
        """
        folder, device = find_model(name), find_device(device)
        dtype = dtype or (torch.bfloat16 if device.type == "cuda" else torch.float32)
        if threads is not None and not 1 <= threads <= MOST_THREADS:
            raise UserError(f"threads {threads}: expected 1 to {MOST_THREADS}")
        side_by_side = threads is None and device.type == "cpu"
        if side_by_side or threads:
            torch.set_num_threads(threads or 1)
        found: dict[str, Bundle] = {kind: load_bundle(folder / kind, device, kind) for kind in kinds_in(folder)}
        if "latent" not in found and "teacher" not in found:
            raise UserError(f"{folder}: no model (neither latent/ nor teacher/ holds a bundle)")
        fields = {name: found[name] for name in ("score", "energy") if name in found}
        for name, bundle in fields.items():
            if "latent" not in found:
                raise UserError(f"{folder / name}: the latent model it belongs to is not there")
            if bundle.about.latent != found["latent"].about.fingerprint:
                raise UserError(f"{folder / name}: was trained on another latent model than {folder / 'latent'}")
        for bundle in found.values():
            bundle.network.to(dtype)
        first = found.get("latent") or found["teacher"]
        for part, other in found.items():
            if other.tokenizer.fingerprint != first.tokenizer.fingerprint:
                raise UserError(f"{folder / part}: has another tokenizer than {folder / 'latent'}")
            if (other.config.languages, other.config.rules) != (first.config.languages, first.config.rules):
                raise UserError(f"{folder / part}: is for other languages or text rules than {folder / 'latent'}")
        own = next((path for option_file in OPTIONS_FILES if (path := folder / option_file).exists()), None)
        translator = Translator(
            first.tokenizer,
            first.config.rules,
            latent=cast(LatentModel, found["latent"].network) if "latent" in found else None,
            fields={name: cast(ScoreNet | EnergyNet, bundle.network) for name, bundle in fields.items()},
            teacher=cast(Teacher, found["teacher"].network) if "teacher" in found else None,
            languages=first.config.languages,
            fingerprints={name: bundle.about.fingerprint for name, bundle in found.items()},
            longest=min(bundle.config.longest for bundle in found.values()),
            graphed=graphed,
            own=load_config(own, DecodingOptions) if own else None,
            workers=_CORES if side_by_side else 1,
        )
        try:
            translator.options()
        except UserError as error:
            raise UserError(f"{own or folder}: {error}") from None
        return translator

    @property
    def methods(self) -> list[Method]:
        """What this translator can do."""
        having = {"prior": self.latent, "delta": self.latent, "teacher": self.teacher} | self.fields
        return [method for method in METHODS if having.get(method) is not None]

    @property
    def rerankers(self) -> list[Rerank]:
        """The rerankers this translator has, the preferred one first after `none`."""
        return [name for name in RERANKS if name != "teacher" or self.teacher is not None]

    @property
    def latent_dim(self) -> int | None:
        """The dimensions of a token's latent, if there is a latent model."""
        return self.latent.latent_dim if self.latent else None

    def options(self, **choices: Any) -> DecodingOptions:
        """Choices that this translator can follow.

        Unless a way is chosen (by method, steps or candidates) it is the model's own, or else one step of the
        best method there is. The model's own is measured as a whole: it is not mixed with a chosen one.
        """
        check_names(choices)
        default: dict[str, Any] = {"method": default_method(self.methods)}
        if self.own and not WAY & choices.keys():
            default = asdict(self.own)
        if choices.get("adaptive"):
            default["steps"] = ADAPTIVE_STEPS
        options = DecodingOptions(**(default | choices))
        if options.method not in self.methods:
            raise UserError(f"method {options.method}: this model has only {', '.join(self.methods)}")
        if options.rerank == "teacher" and self.teacher is None:
            raise UserError("rerank teacher: this model has no teacher; decoder, elbo and marginal need none")
        return options

    def warmup(self, batches: Sequence[int] = (1,), compiled: bool = True, **choices: Any) -> None:
        """Make first translations as fast as later ones, on a GPU; on a CPU there is nothing to do.

        Choices and `batches`, the numbers of sentences translated together, are those that are to be fast. Compiling
        takes a minute or two and makes it about a third faster. (Details: `Engine.warmup`.)
        """
        self.engine.warmup(self.options(**choices), self.longest, batches, compiled)

    @overload
    def translate(self, texts: str, **choices: Any) -> str: ...

    @overload
    def translate(self, texts: Sequence[str], **choices: Any) -> list[str]: ...

    def translate(self, texts: str | Sequence[str], **choices: Any) -> str | list[str]:
        """Translate a text or several. Choices are those of `DecodingOptions`: method, steps, lengths …"""
        options = self.options(**choices)
        if not isinstance(texts, str | list | tuple):
            raise UserError(f"expected a text or a list of texts, got {reprlib.repr(texts)}")
        if isinstance(texts, str):
            return self.translations([texts], options)[0].text
        return [translation.text for translation in self.translations(texts, options)]

    def translations(
        self, texts: Sequence[str], options: DecodingOptions, check_cancelled: CheckCancelled = never_cancelled
    ) -> list[Translation]:
        """Translate texts, and keep what they were decoded as."""
        cut = [self._cut(text, options.verbatim) for text in texts]
        done = iter(self._best([part for one in cut for part in one.asked], options, check_cancelled))
        return [self._joined(one, [next(done) for _ in one.asked]) for one in cut]

    def aligned(
        self, texts: Sequence[str], options: DecodingOptions, check_cancelled: CheckCancelled = never_cancelled
    ) -> list[Aligned]:
        """Translate texts, and say which parts of text and translation belong together."""
        cut = [self._cut(text, options.verbatim) for text in texts]
        done = self._best([part for one in cut for part in one.asked], options, check_cancelled)
        pairs = zip(done, self._links(done, check_cancelled), strict=True)
        return [self._linked(one, [next(pairs) for _ in one.asked]) for one in cut]

    def candidates(self, texts: Sequence[str], options: DecodingOptions) -> list[list[Translation]]:
        """Every candidate of texts that are one sentence each (the first one of those that are more, none of none)."""
        asked = [self._cut(text, options.verbatim).asked[:1] for text in texts]
        searched = iter(self.engine.all([part.ids for some in asked for part in some], options))
        return [
            [Translation(Done.of(part, one, self._text(one)).text, one.decoded) for one in next(searched)[0]]
            if (part := next(iter(some), None))
            else []
            for some in asked
        ]

    def alternatives(
        self,
        texts: Sequence[str],
        options: DecodingOptions,
        most: int,
        check_cancelled: CheckCancelled = never_cancelled,
    ) -> list[list[str]]:
        """Translations of each text, the one that is kept first, and no two alike: at most so many.

        Those of several sentences have the second best of each, then the third best, as far as there are so many.
        """
        cut = [self._cut(text, options.verbatim) for text in texts]
        searched = iter(self.engine.all([part.ids for one in cut for part in one.asked], options, check_cancelled))
        return [self._ranked(one, [next(searched) for _ in one.asked], most, options, check_cancelled) for one in cut]

    def trace(self, text: str, **choices: Any) -> list[SentenceTrace]:
        """Every step of every sentence of a text, with the latent model."""
        return self.traces(text, self.options(**choices))

    def traces(
        self, text: str, options: DecodingOptions, check_cancelled: CheckCancelled = never_cancelled
    ) -> list[SentenceTrace]:
        """The same for choices already made."""
        if options.method == "teacher":
            raise UserError("there are no refinement steps in what the teacher does")
        traces = []
        for ids in self.sentences(text):
            check_cancelled()
            traces.append(trace_sentence(self.engine, ids, options))
        return traces

    def field_around(
        self, trace: SentenceTrace, options: DecodingOptions, token: int, points: Float[Tensor, "n D"]
    ) -> Float[Tensor, "n D"]:
        """The field at these latents of one token, the other tokens being at their final positions."""
        return field_around(self.engine, trace, options, token, points)

    def sentences(self, text: str) -> list[list[int]]:
        """The ids of a text's sentences, as they are."""
        return [part.ids for part in self._cut(text, verbatim=False).asked]

    def texts(self, targets: Sequence[Sequence[int]]) -> list[str]:
        """Targets as text. What a model spells in bytes may be a line feed; normalised, a translation is one line."""
        return [normalise(text, self.rules[1]) for text in self.tokenizer.decode(targets)]

    def _text(self, candidate: Candidate) -> str:
        return self.texts([candidate.readable])[0]

    def _cut(self, text: str, verbatim: bool) -> Passage:
        encode = lru_cache(self._encode)  # what fits is wanted again

        def fits(part: str) -> bool:
            return len(encode(part)) <= self.longest

        if verbatim:
            line, sentences = self._verbatim.cut(_valid(text), fits)
        else:
            line = split_line(_valid(text), fits)
            sentences = [Sentence.plain(part.text) for part in line.parts]
        parts = [Part(sentence, encode(sentence.shown.text), verbatim) for sentence in sentences]
        return Passage(line, parts)

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode([normalise(text, self.rules[0])])[0]

    def _best(self, parts: Sequence[Part], options: DecodingOptions, check_cancelled: CheckCancelled) -> list[Done]:
        """The translations that are kept, with all that is repeated verbatim in its place."""
        return self._completed(
            self._tried_again(self._done(parts, options, check_cancelled), options, check_cancelled), check_cancelled
        )

    def _tried_again(self, done: list[Done], options: DecodingOptions, check_cancelled: CheckCancelled) -> list[Done]:
        """Where something is lost, the translation in which the numbers have stand-ins, too, if less is lost there."""
        masked = {
            number: self._verbatim.without_numbers(one.part.sentence) for number, one in enumerate(done) if one.lost
        }
        masked = {
            number: one for number, one in masked.items() if one.shown.text != done[number].part.sentence.shown.text
        }
        if not masked:
            return done
        shown = [Part(sentence, self._encode(sentence.shown.text)) for sentence in masked.values()]
        better = dict(zip(masked, self._done(shown, options, check_cancelled), strict=True))
        return [min(one, better.get(number, one), key=lambda each: len(each.lost)) for number, one in enumerate(done)]

    def _completed(self, done: list[Done], check_cancelled: CheckCancelled) -> list[Done]:
        """The same with what is still lost put where it belongs."""
        short = [number for number, one in enumerate(done) if one.lost]
        links = (
            dict(zip(short, self._links([done[number] for number in short], check_cancelled), strict=True))
            if short
            else {}
        )
        return [one.completed(links[number]) if number in links else one for number, one in enumerate(done)]

    def _done(self, parts: Sequence[Part], options: DecodingOptions, check_cancelled: CheckCancelled) -> list[Done]:
        found = self.engine.best([part.ids for part in parts], options, check_cancelled)
        return [Done.of(part, one, self._text(one)) for part, one in zip(parts, found, strict=True)]

    def _links(self, done: Sequence[Done], check_cancelled: CheckCancelled) -> list[list[Link]]:
        """Between what the model was shown and what it wrote."""
        targets = [one.candidate.readable for one in done]
        weights = self.engine.align([one.part.ids for one in done], targets, check_cancelled)
        return [
            links(self.tokenizer, self.rules, one.part.sentence.shown.text, target, each)
            for one, target, each in zip(done, targets, weights, strict=True)
        ]

    def _joined(self, text: Passage, done: Sequence[Done]) -> Translation:
        return Translation(
            text.joined([one.text for one in done]), [id_ for one in done for id_ in one.candidate.decoded]
        )

    def _ranked(
        self,
        text: Passage,
        found: list[tuple[list[Candidate], int]],
        most: int,
        options: DecodingOptions,
        check_cancelled: CheckCancelled,
    ) -> list[str]:
        each = [ranked(candidates, best) for candidates, best in found]
        texts = []
        for number in range(min(most, max(map(len, each), default=1))):
            chosen = [some[min(number, len(some) - 1)] for some in each]
            done = [Done.of(part, one, self._text(one)) for part, one in zip(text.asked, chosen, strict=True)]
            if number == 0:  # as it is translated without alternatives
                done = self._tried_again(done, options, check_cancelled)
            texts.append(text.joined([one.text for one in self._completed(done, check_cancelled)]))
        return list(dict.fromkeys(texts))

    def _linked(self, text: Passage, done: Sequence[tuple[Done, list[Link]]]) -> Aligned:
        """The same, with the links of every sentence where it stands in its text."""
        whole, pairs, linked = text.joined([one.text for one, _ in done]), iter(done), []
        source = target = len(text.line.before)
        for part, after in zip(text.parts, (one.after for one in text.line.parts), strict=True):
            written = part.untouched
            if part.is_asked:
                one, some = next(pairs)
                written = one.text
                linked += [link.moved(source, target) for link in one.linked(some)]
            elif written == part.sentence.text:
                size = len(written)
                linked.append(Link((source, source + size), (target, target + size), 1.0))
            source, target = source + len(part.sentence.text) + len(after), target + len(written) + len(after)
        return Aligned(whole, linked)


def _valid(text: str) -> str:
    """The text in which halves of characters have found each other, or are replaced: they cannot be written."""
    if not isinstance(text, str):
        raise UserError(f"expected a text, got {reprlib.repr(text)}")
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
