"""How long requests take: an estimate in seconds, from tokens and options, with constants measured on this machine.

The time of a part of the work is a constant for each pass of the networks, so much for each source token, and so much
for each target token of each candidate. A search with each reranker is such a part, a refinement step is one, the
alignment, and what a trace takes more. The teacher's beam search takes as many steps as a target has tokens.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from latentmt.data.tokenizer import EOS
from latentmt.documents.markup import Document
from latentmt.engines.backend import never_cancelled
from latentmt.options import DecodingOptions
from latentmt.results import Candidate
from latentmt.serve.tracing import trace_text
from latentmt.translator import Translator

SHORT, LONG = 6, 36
"""Tokens of the sentences that are timed."""
CANDIDATES, STEPS = 6, 3
"""Of the searches that are timed."""
_REPEATS, _ENOUGH = 7, 0.15
"""How often each is timed, or until so many seconds have passed, but at least twice. The shortest time counts."""
_CHARACTERS_PER_TOKEN = 3.5
_LM_WEIGHT = 0.25
"""Of the language model. The time hardly depends on it."""
_BEAM_TOKENS = 4096
"""Tokens that the teacher translates together, on an engine that translates sentences together."""
_RUN_TOKENS = 1024
"""Target tokens of a pass, on an engine that translates sentences one by one."""


@dataclass(frozen=True)
class Part:
    """Seconds of a part of the work."""

    fixed: float = 0.0
    """For each pass."""
    source: float = 0.0
    """For each source token."""
    target: float = 0.0
    """For each target token, of all candidates."""

    @staticmethod
    def measured(
        short: float,
        long: float,
        many: float | None = None,
        passes: int = 1,
        lengths: tuple[int, int] = (SHORT, LONG),
    ) -> Part:
        """The part that takes these times for a short sentence, a long one, and a long one with many candidates, which
        takes so many passes. Nothing is negative."""
        few, tokens = lengths
        both = max(long - short, 0.0) / (tokens - few)
        fixed = max(min(short - few * both, long), 0.0)
        if many is None:
            return Part(fixed, max(long - fixed, 0.0) / tokens)
        target = max(many - long - (passes - 1) * fixed, 0.0) / ((CANDIDATES - 1) * tokens)
        return Part(fixed, max((long - fixed) / tokens - target, 0.0), target)

    def seconds(self, passes: int, source: int, target: int) -> float:
        return self.fixed * passes + self.source * source + self.target * target


@dataclass(frozen=True)
class Costs:
    """The constants of a model on an engine."""

    searches: Mapping[str, Part] = field(default_factory=dict)
    """Searches without refinement, by reranker."""
    steps: Mapping[str, Part] = field(default_factory=dict)
    """A refinement step, by method."""
    language_model: Part = Part()
    """Reading a translation with the language model."""
    beam: Part = Part()
    """A token of the teacher's beam search; its target tokens are those of all hypotheses."""
    alignment: Part = Part()
    traced: Part = Part()
    """What a trace takes beyond the search, for each step that is shown."""
    character: float = 0.0
    """A character of text: splitting, encoding, joining."""
    markup: float = 0.0
    """A character of HTML: reading and writing."""
    batch_tokens: int = 1
    """Target tokens that are translated together; 1: sentences are translated one by one."""

    @property
    def batch_seconds(self) -> float:
        """The work that is done together. It is little where that brings nothing, since all of it is answered last."""
        return 0.05 if self.batch_tokens == 1 else 0.25

    def seconds(
        self,
        lengths: Sequence[int],
        options: DecodingOptions,
        characters: int = 0,
        html: bool = False,
        traced: bool = False,
    ) -> float:
        """How long sentences of these lengths take, EOS included."""
        tokens, rows = sum(lengths), options.candidates
        total = characters * (self.character + (self.markup if html else 0.0))
        if not tokens:
            return total
        if html:
            total += self.alignment.seconds(self._passes(lengths, 1), tokens, tokens)
        if options.method == "teacher":
            steps = tokens if self.batch_tokens == 1 else max(lengths) * math.ceil(tokens / _BEAM_TOKENS)
            return total + self.beam.seconds(steps, 0, tokens * options.beam)
        passes = len(lengths) if traced else self._passes(lengths, rows)
        total += self.searches.get(options.rerank, Part()).seconds(passes, tokens, tokens * rows)
        if options.refines:
            total += options.steps * self.steps.get(options.method, Part()).seconds(passes, tokens, tokens * rows)
        shown = 1 + options.steps if options.refines else 1
        if options.lm_weight:  # delta reads its own translations, and a trace what it shows
            reads = 1 + (options.steps if options.method == "delta" else 0) + (shown if traced else 0)
            width = options.beam / DecodingOptions.beam
            total += reads * width * self.language_model.seconds(passes, tokens, tokens * rows)
        if traced:
            total += self.traced.seconds(len(lengths) * shown, tokens * shown, tokens * shown)
        return total

    def estimate(
        self, texts: Sequence[str], options: DecodingOptions, html: bool = False, traced: bool = False
    ) -> float:
        """The same before texts are split and encoded."""
        characters = sum(map(len, texts))
        tokens = sum(1 + round(len(text) / _CHARACTERS_PER_TOKEN) + _bytes_beyond_ascii(text) for text in texts)
        sentences, last = divmod(tokens, LONG)
        return self.seconds([LONG] * sentences + [last] * (last > 0), options, characters, html, traced)

    def _passes(self, lengths: Sequence[int], rows: int) -> int:
        """How often the networks run."""
        limit, least = (_RUN_TOKENS, len(lengths)) if self.batch_tokens == 1 else (self.batch_tokens, 1)
        return max(math.ceil(sum(lengths) * rows / limit), least)


def _bytes_beyond_ascii(text: str) -> int:
    """The bytes of a text in excess of one per character. Unknown characters are tokenized as bytes."""
    return 0 if text.isascii() else len(text.encode("utf-8", "surrogatepass")) - len(text)


def measure_costs(translator: Translator) -> Costs:
    """Time each part of what a request may ask for, on sentences that mean nothing. It takes some seconds."""
    return _Timer(translator).costs()


class _Timer:
    """Times the parts of translating one sentence."""

    def __init__(self, translator: Translator) -> None:
        self._translator, self._backend = translator, translator.backend
        self._batch_tokens = int(translator.backend.info["batch_tokens"])

    def costs(self) -> Costs:
        methods = set(self._translator.methods)
        character, markup, alignment = self._text()
        beam = self._beam() if "teacher" in methods else Part()
        others: dict[str, Any] = {"character": character, "markup": markup, "alignment": alignment, "beam": beam}
        if "prior" not in methods:
            return Costs(**others, batch_tokens=self._batch_tokens)
        rerankers = [name for name in self._backend.rerankers if name != "none"]
        times = {name: self._times("prior", rerank=name) for name in rerankers}
        plain = self._single("prior")
        searches = {name: self._part(*measured) for name, measured in times.items()}
        return Costs(
            searches={"none": Part.measured(*plain), **searches},
            steps={name: self._step(name, times[rerankers[0]]) for name in sorted(methods - {"prior", "teacher"})},
            traced=self._trace(plain),
            language_model=self._reading(plain),
            batch_tokens=self._batch_tokens,
            **others,
        )

    def _shortest(self, work: Callable[[], object]) -> float:
        return shortest(work, self._backend.on_gpu)

    def _sentence(self, length: int) -> list[int]:
        """Pieces from all over the vocabulary."""
        size = self._translator.tokenizer.size
        return [size // 2 + 7 * number % (size // 2) for number in range(length - 1)] + [EOS]

    def _seconds(self, length: int, **options: Any) -> float:
        chosen, sentence = self._translator.options(**options), self._sentence(length)
        return self._shortest(lambda: self._backend.best([sentence], chosen))

    def _single(self, method: str, **options: Any) -> tuple[float, float]:
        """The times of a short and of a long sentence."""
        short, long = (self._seconds(length, method=method, **options) for length in (SHORT, LONG))
        return short, long

    def _times(self, method: str, rerank: str, **options: Any) -> tuple[float, float, float]:
        """Those, and that of a long sentence with many candidates."""
        short, long = self._single(method, rerank=rerank, **options)
        return short, long, self._seconds(LONG, method=method, rerank=rerank, lengths=CANDIDATES, **options)

    def _reading(self, without: tuple[float, float]) -> Part:
        """Reading with the language model: what it takes more than reading without."""
        if not self._backend.has_language_model:
            return Part()
        short, long = self._single("prior", lm_weight=_LM_WEIGHT)
        return Part.measured(max(short - without[0], 0.0), max(long - without[1], 0.0))

    def _part(self, short: float, long: float, many: float) -> Part:
        passes = Costs(batch_tokens=self._batch_tokens)._passes([LONG], CANDIDATES)
        return Part.measured(short, long, many, passes)

    def _step(self, method: str, without: tuple[float, float, float]) -> Part:
        """A refinement step: what some of them take more than a search without."""
        rerank = next(name for name in self._backend.rerankers if name != "none")
        times = self._times(method, rerank=rerank, steps=STEPS)
        short, long, many = ((one - other) / STEPS for one, other in zip(times, without, strict=True))
        return self._part(short, long, many)

    def _beam(self) -> Part:
        """A token of beam search, whose time is known for one hypothesis and for several."""
        sentence = self._sentence(LONG)

        def step(beam: int) -> float:
            options, found = self._translator.options(method="teacher", beam=beam), list[Candidate]()
            seconds = self._shortest(lambda: found.extend(self._backend.best([sentence], options)))
            return seconds / (1 + len(found[0].decoded))

        single, several = step(1), step(CANDIDATES)
        token = max(several - single, 0.0) / (CANDIDATES - 1)
        return Part(fixed=max(single - token, 0.0), target=token)

    def _trace(self, plain: tuple[float, float]) -> Part:
        """What a trace takes beyond the search."""
        options, search = self._translator.options(method="prior"), Part.measured(*plain)

        def seconds(text: str) -> float:
            tokens = self._tokens(text)
            traced = self._shortest(lambda: trace_text(self._translator, text, options, never_cancelled))
            return traced - search.seconds(1, tokens, tokens)

        return self._by_text(seconds)

    def _text(self) -> tuple[float, float, Part]:
        """A character of text, one of HTML, and alignments."""
        translator = self._translator
        options = translator.options(method=translator.methods[0], rerank="none")
        text = " ".join(self._words(LONG) for _ in range(4))
        segmenting = self._shortest(lambda: translator.segmented([text], options))
        page = "".join(f"<p>{word} <b>{word}</b></p>" for word in text.split())
        document = Document(page)
        translations = translator.translations(document.texts, options, alignment=True)
        markup = self._shortest(lambda: Document(page).render(translations)) / len(page)
        alignment = self._by_text(lambda text: self._aligned(text, options))
        return 2 * segmenting / len(text), markup, alignment  # as much again for joining

    def _by_text(self, seconds: Callable[[str], float]) -> Part:
        """The part that takes these times for two texts, whose tokens are counted."""
        short, long = self._words(SHORT), self._words(LONG)
        return Part.measured(seconds(short), seconds(long), lengths=(self._tokens(short), self._tokens(long)))

    def _words(self, length: int) -> str:
        return self._translator.tokenizer.decode([self._sentence(length)])[0]

    def _tokens(self, text: str) -> int:
        return sum(map(len, self._translator.sentences(text)))

    def _aligned(self, text: str, options: DecodingOptions) -> float:
        """What the alignment of a text takes."""
        translations = self._translator.translations
        with_, without = (
            self._shortest(lambda aligned=aligned: translations([text], options, alignment=aligned))  # type: ignore[misc]
            for aligned in (True, False)
        )
        return with_ - without


def shortest(work: Callable[[], object], on_gpu: bool = False) -> float:
    """The shortest of several times. What other processes take on a busy CPU does not count."""
    times: list[float] = []
    while len(times) < 2 or (len(times) < _REPEATS and sum(times) < _ENOUGH):
        start, began = time.perf_counter(), time.process_time()
        work()
        seconds, used = time.perf_counter() - start, time.process_time() - began
        times.append(seconds if on_gpu else min(seconds, used))  # several threads use more than they take
    return min(times)


def costs_from(data: Mapping[str, Any]) -> Costs:
    """Costs from JSON, the inverse of `asdict`."""

    def converted(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        if value.keys() == {"fixed", "source", "target"}:
            return Part(**value)
        return {name: converted(inner) for name, inner in value.items()}

    return Costs(**{name: converted(value) for name, value in data.items()})
