"""The translator: from texts to their translations.

A translator splits texts into sentences, normalises and encodes them, translates them with an engine, and joins the
translations. The order and the number of texts are kept, and the white space between sentences. It depends on neither
networks nor torch, and may be used from several threads at once.
"""

from __future__ import annotations

import copy
import os
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Unpack, overload

from latentmt.bundle import open_model
from latentmt.config import YAML_LIMIT, from_yaml
from latentmt.data.normalise import TextRules, normalise
from latentmt.data.tokenizer import Tokenizer
from latentmt.engines.backend import Backend, CheckCancelled, never_cancelled
from latentmt.engines.load import load_backend, torch_backend
from latentmt.errors import UserError
from latentmt.files import read_plain
from latentmt.installed import find_model
from latentmt.options import Abilities, DecodingOptions, OptionArguments
from latentmt.results import Candidate, SentenceTrace, Translation
from latentmt.text.alignment import links
from latentmt.text.glossary import Glossary, Term, capitalised, find_terms, missing_terms, with_terms
from latentmt.text.names import FILE as NAMES_FILE
from latentmt.text.names import MAX_BYTES as NAMES_LIMIT
from latentmt.text.names import Names
from latentmt.text.segments import Segment, SegmentedText, TranslatedSegment, mean_score
from latentmt.text.sentences import split_line
from latentmt.text.verbatim import Sentence, Verbatim, superfluous

OPTIONS_FILES = ("options.yaml", "how.yaml")
"""The model's default options, beside its bundles. The second name is that of version 0.1."""


class Translator:
    """A model on an engine, with its tokenizer and text rules."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        rules: tuple[TextRules, TextRules],
        backend: Backend,
        *,
        languages: tuple[str, str] | None = None,
        fingerprints: dict[str, str] | None = None,
        max_length: int = 64,
        default_options: DecodingOptions | None = None,
        names: Names | None = None,
    ) -> None:
        self.tokenizer, self.rules, self.backend = tokenizer, rules, backend
        self.languages = languages
        """Codes of the source and of the target language, if known."""
        self.fingerprints = fingerprints or {}
        """The fingerprints of the bundles, by kind."""
        self.max_length = max_length
        """The maximum length of a sentence in tokens, EOS included: that of the training data."""
        self.default_options = default_options
        """The model's default options, if it has some."""
        self.names = names
        """What names look like, if the model knows."""
        self._verbatim = Verbatim(tokenizer.placeholders, languages, lowercase=rules[0].lowercase)

    @staticmethod
    def load(
        name: Path | str | None = None,
        device: Any = "cpu",
        threads: int | None = None,
        dtype: Any = None,
        graphs: bool | None = None,
        engine: str = "auto",
    ) -> Translator:
        """Load a model: a folder with bundles (any of `latent`, fields and `teacher`), or the name of an installed
        model, or without a name the first installed one. A file `options.yaml` in the folder holds the model's default
        options, and `names.npz` what names look like.

        `device`: a torch device or its name, or `auto`: a GPU if there is one.
        `threads`: the number of cores for each batch, set for the whole process. If it is None, batches are translated
        in parallel, on one CPU core each: threads of one batch wait for each other, which is slow on a busy machine.
        `dtype`: the precision of the weights in torch, by default bfloat16 on a GPU and float32 on a CPU.
        `graphs`: whether torch's searches are recorded as CUDA graphs, by default on a GPU.
        `engine`: `onnx`, `torch`, or `auto`: ONNX for an exported model on a CPU, torch otherwise.
        """
        folder = find_model(name)
        bundles = open_model(folder)
        first = next(iter(bundles.values()))
        options = next((path for file in OPTIONS_FILES if os.path.lexists(path := folder / file)), None)
        translator = Translator(
            first.tokenizer,
            first.header.rules,
            load_backend(bundles, str(device), threads, dtype, graphs, engine),
            languages=first.header.languages,
            fingerprints={kind: bundle.about.fingerprint for kind, bundle in bundles.items()},
            max_length=min(bundle.header.longest for bundle in bundles.values()),
            default_options=_default_options(options) if options else None,
            names=_names(path) if os.path.lexists(path := folder / NAMES_FILE) else None,
        )
        try:
            translator.options()
        except UserError as error:
            raise UserError(f"{options or folder}: {error}") from None
        return translator

    @staticmethod
    def from_networks(
        tokenizer: Tokenizer,
        rules: tuple[TextRules, TextRules],
        *,
        latent: Any = None,
        fields: Mapping[str, Any] | None = None,
        teacher: Any = None,
        graphs: bool | None = None,
        **others: Any,
    ) -> Translator:
        """A translator with torch networks in memory. Other arguments: as for `Translator`."""
        return Translator(tokenizer, rules, torch_backend(tokenizer, latent, fields or {}, teacher, graphs), **others)

    def with_backend(self, backend: Backend) -> Translator:
        """The same translator on another engine."""
        other = copy.copy(self)
        other.backend = backend
        return other

    @property
    def methods(self) -> list[str]:
        """The decoding methods of this model."""
        return self.backend.methods

    def options(self, **options: Unpack[OptionArguments]) -> DecodingOptions:
        """Options that are valid for this model (see `Abilities.options`)."""
        return self.abilities.options(options)

    @property
    def abilities(self) -> Abilities:
        """What options this model allows, and which it uses by default."""
        backend = self.backend
        return Abilities(
            self.methods,
            backend.default_method,
            backend.rerankers,
            self.default_options,
            backend.has_language_model,
        )

    def warmup(self, batches: Sequence[int] = (1,), compiled: bool = True, **options: Unpack[OptionArguments]) -> None:
        """Make the first translations as fast as later ones, on a GPU. On a CPU nothing is done.

        It applies to translations with these options and with these batch sizes. Compiling takes a minute or two and
        makes them about a third faster.
        """
        self.backend.warmup(self.options(**options), self.max_length, batches, compiled)

    @overload
    def translate(self, texts: str, **options: Unpack[OptionArguments]) -> str: ...  # type: ignore[overload-overlap]

    @overload
    def translate(self, texts: Sequence[str], **options: Unpack[OptionArguments]) -> list[str]: ...

    def translate(self, texts: str | Sequence[str], **options: Unpack[OptionArguments]) -> str | list[str]:
        """Translate a text or several. Options are those of `DecodingOptions`: method, steps, lengths …"""
        chosen = self.options(**options)
        if not isinstance(texts, str | list | tuple):
            raise UserError(f"expected a text or a list of texts, got {reprlib.repr(texts)}")
        if isinstance(texts, str):
            return self.translations([texts], chosen)[0].text
        return [translation.text for translation in self.translations(texts, chosen)]

    def translations(
        self,
        texts: Sequence[str],
        options: DecodingOptions | None = None,
        *,
        alternatives: int = 0,
        alignment: bool = False,
        details: bool = False,
        glossary: Glossary | None = None,
        check_cancelled: CheckCancelled = never_cancelled,
    ) -> list[Translation]:
        """Translate texts, with up to so many alternatives each; with their alignment; or with details, also tokens.

        The first alternative of a text has the second best candidate of each sentence, and so on. With a glossary, each
        of its terms that a text has is translated as the glossary says.
        """
        options = options or self.options()
        return self.translate_segmented(
            self.segmented(texts, options, check_cancelled),
            options,
            alternatives=alternatives,
            alignment=alignment,
            details=details,
            glossary=glossary,
            check_cancelled=check_cancelled,
        )

    def segmented(
        self, texts: Sequence[str], options: DecodingOptions, check_cancelled: CheckCancelled = never_cancelled
    ) -> list[SegmentedText]:
        """Texts as segments, which are encoded sentences: all of `translations` that comes before the model."""
        results = []
        for text in texts:
            check_cancelled()
            results.append(self._segment(text, options.verbatim))
        return results

    def translate_segmented(
        self,
        segmented: Sequence[SegmentedText],
        options: DecodingOptions,
        *,
        alternatives: int = 0,
        alignment: bool = False,
        details: bool = False,
        glossary: Glossary | None = None,
        check_cancelled: CheckCancelled = never_cancelled,
    ) -> list[Translation]:
        """Translate texts that are segmented. Arguments: as for `translations`."""
        segments = [segment for text in segmented for segment in text.translated]
        candidates = self._candidates(segments, options, alternatives, check_cancelled)
        best = self._translate(segments, [ranked[0] for ranked in candidates], check_cancelled, options, glossary)
        if alignment or details:
            best = self._annotated(best, check_cancelled, log_probs=details)
        results, start = [], 0
        for text in segmented:
            here = slice(start, start := start + len(text.translated))
            result = self._joined(text, best[here], options, alignment or details)
            if alternatives:
                result = replace(
                    result,
                    alternatives=self._alternatives(
                        text, candidates[here], result.text, check_cancelled, options, glossary
                    ),
                )
            results.append(result)
        return results

    def candidates(self, texts: Sequence[str], options: DecodingOptions) -> list[list[Translation]]:
        """Every candidate of the first sentence of each text. None for a text without a sentence."""
        first = [self._segment(text, options.verbatim).translated[:1] for text in texts]
        results = iter(self.backend.candidates([segment.ids for segments in first for segment in segments], options))
        return [
            [
                Translation(self._restored(segment, candidate).text, candidate.decoded, candidate.score)
                for segment in segments
                for candidate in next(results).all
            ]
            for segments in first
        ]

    def trace(self, text: str, **options: Unpack[OptionArguments]) -> list[SentenceTrace]:
        """Every refinement step of every sentence of a text."""
        return self.traces(text, self.options(**options))

    def traces(
        self, text: str, options: DecodingOptions, check_cancelled: CheckCancelled = never_cancelled
    ) -> list[SentenceTrace]:
        """Like `trace`, with validated options."""
        if options.method == "teacher":
            raise UserError("the teacher has no refinement steps to trace")
        traces = []
        for ids in self.sentences(text):
            check_cancelled()
            traces.append(self.backend.trace(ids, options, check_cancelled))
        return traces

    def sentences(self, text: str) -> list[list[int]]:
        """The ids of a text's sentences, without placeholders."""
        return [segment.ids for segment in self._segment(text, verbatim=False).translated]

    def texts(self, targets: Sequence[Sequence[int]]) -> list[str]:
        """Decode targets to text. It is normalised to one line, because byte pieces may spell a line feed."""
        return [normalise(text, self.rules[1]) for text in self.tokenizer.decode(targets)]

    def _segment(self, text: str, verbatim: bool) -> SegmentedText:
        encode = lru_cache(self._encode)  # parts that fit are encoded again below

        def fits(part: str) -> bool:
            return len(encode(part)) <= self.max_length

        if verbatim:
            line, sentences = self._verbatim.split(_valid(text), fits)
        else:
            line = split_line(_valid(text), fits)
            sentences = [Sentence.plain(part.text) for part in line.parts]
        return SegmentedText(line, [Segment(item, encode(item.masked.text), verbatim) for item in sentences])

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode([normalise(text, self.rules[0])])[0]

    def _candidates(
        self,
        segments: Sequence[Segment],
        options: DecodingOptions,
        alternatives: int,
        check_cancelled: CheckCancelled,
    ) -> list[list[Candidate]]:
        """The candidates of each segment, best first: one, or one more than the alternatives."""
        ids = [segment.ids for segment in segments]
        if not alternatives:
            return [[candidate] for candidate in self.backend.best(ids, options, check_cancelled)]
        results = self.backend.candidates(ids, options, check_cancelled)
        return [result.ranked[: alternatives + 1] for result in results]

    def _translate(
        self,
        segments: Sequence[Segment],
        candidates: Sequence[Candidate],
        check_cancelled: CheckCancelled,
        options: DecodingOptions,
        glossary: Glossary | None = None,
        retry: bool = True,
    ) -> list[TranslatedSegment]:
        """Segments translated by these candidates, with all verbatim spans restored and terms as the glossary has them.

        With `retry`, segments with missing spans or names are first translated again, with placeholders for these.
        """
        results = [self._restored(*pair) for pair in zip(segments, candidates, strict=True)]
        if retry:
            results = self._retried(results, options, check_cancelled)
        if glossary:
            results = self._with_terms(segments, results, glossary, options, check_cancelled)
        if incomplete := [number for number, result in enumerate(results) if result.missing]:
            annotated = self._annotated([results[number] for number in incomplete], check_cancelled)
            for number, result in zip(incomplete, annotated, strict=True):
                results[number] = result.completed()
        return results

    def _restored(self, segment: Segment, candidate: Candidate) -> TranslatedSegment:
        return TranslatedSegment.from_candidate(segment, candidate, self.texts([candidate.readable])[0])

    def _retried(
        self, results: list[TranslatedSegment], options: DecodingOptions, check_cancelled: CheckCancelled
    ) -> list[TranslatedSegment]:
        """For segments with missing spans or names, the translation with placeholders for these, if it is better."""
        masked = {}
        for number, result in enumerate(results):
            sentence = result.segment.sentence
            other = self._verbatim.mask_numbers(sentence) if result.missing else sentence
            core = sentence.masked.original
            other = self._verbatim.mask(other, {span: core[slice(*span)] for span in self._missing_names(result)})
            if other.masked.text != sentence.masked.text:
                masked[number] = Segment(other, self._encode(other.masked.text))
        if not masked:
            return results
        candidates = self.backend.best([segment.ids for segment in masked.values()], options, check_cancelled)
        again = {
            number: self._restored(segment, candidate)
            for (number, segment), candidate in zip(masked.items(), candidates, strict=True)
        }
        return [
            min(result, again[number], key=self._faults) if number in again else result
            for number, result in enumerate(results)
        ]

    def _missing_names(self, result: TranslatedSegment) -> list[tuple[int, int]]:
        """Where the sentence has names that its translation lacks, outside of what is copied verbatim."""
        if self.names is None or not result.segment.verbatim:
            return []
        masked = result.segment.sentence.masked
        return [
            (start, end)
            for start, end in self.names.missing(masked.original, result.rewritten.text)
            if not any(start < old.end and old.start < end for old in masked.replacements)
        ]

    def _faults(self, result: TranslatedSegment) -> int:
        """How many spans and names a translation lacks, and how many placeholders it has too often."""
        more = superfluous(result.segment.sentence, result.rewritten.original)
        return len(result.missing) + len(self._missing_names(result)) + more

    def _with_terms(
        self,
        segments: Sequence[Segment],
        results: list[TranslatedSegment],
        glossary: Glossary,
        options: DecodingOptions,
        check_cancelled: CheckCancelled,
    ) -> list[TranslatedSegment]:
        """The same with the glossary's terms.

        Where one is missing, it replaces the words that are aligned with it. If there are none, or not in one piece,
        the sentence is translated again with placeholders for its terms.
        """
        language = self.languages[0] if self.languages else ""
        terms = [find_terms(glossary, segment.sentence, language) for segment in segments]
        lacking = [number for number, found in enumerate(terms) if missing_terms(results[number], found)]
        annotated = self._annotated([results[number] for number in lacking], check_cancelled)
        masked: dict[int, Segment] = {}
        for number, result in zip(lacking, annotated, strict=True):
            if placed := with_terms(result, terms[number]):
                results[number] = placed
            else:
                masked[number] = self._masked_terms(segments[number], result.segment, terms[number])
        asked = {number: segment for number, segment in masked.items() if segment.is_translated}
        found = self.backend.best([segment.ids for segment in asked.values()], options, check_cancelled)
        candidates = dict(zip(asked, found, strict=True))
        for number, segment in masked.items():
            ids = segment.ids[:-1]  # nothing but terms: the placeholders are its translation
            result = self._restored(segment, candidates.get(number) or Candidate(ids, ids, 0.0))
            results[number] = capitalised(result, terms[number])
            left = missing_terms(results[number].completed(), terms[number])
            results[number] = replace(results[number], missing=[*results[number].missing, *left])
        return results

    def _masked_terms(self, segment: Segment, last: Segment, terms: Sequence[Term]) -> Segment:
        """The segment with placeholders for terms, and for what else had one when it was translated last."""
        sentence = self._verbatim.mask(segment.sentence, {term.span: term.target for term in terms})
        sentence = self._verbatim.mask(sentence, last.sentence.masked_spans)
        return Segment(sentence, self._encode(sentence.masked.text))

    def _annotated(
        self, results: Sequence[TranslatedSegment], check_cancelled: CheckCancelled, log_probs: bool = False
    ) -> list[TranslatedSegment]:
        """The same with attention, and with the probabilities of their tokens if they are asked for."""
        targets = [result.candidate.readable for result in results]
        sources = [result.segment.ids for result in results]
        annotations = self.backend.annotate(sources, targets, check_cancelled, log_probs)
        return [
            replace(
                result,
                annotation=annotation,
                links=links(
                    self.tokenizer, self.rules, result.segment.sentence.masked.text, target, annotation.attention
                ),
            )
            for result, target, annotation in zip(results, targets, annotations, strict=True)
        ]

    def _joined(
        self, text: SegmentedText, results: Sequence[TranslatedSegment], options: DecodingOptions, alignment: bool
    ) -> Translation:
        return Translation(
            text.joined([result.text for result in results]),
            [id_ for result in results for id_ in result.candidate.decoded],
            mean_score(results, ranked=options.rerank != "none" or options.method == "teacher"),
            tokens=[token for result in results for token in result.tokens(self.tokenizer)],
            alignment=text.alignment(results) if alignment else [],
            sentences=text.sentences(results) if alignment else [],
        )

    def _alternatives(
        self,
        text: SegmentedText,
        candidates: Sequence[list[Candidate]],
        best: str,
        check_cancelled: CheckCancelled,
        options: DecodingOptions,
        glossary: Glossary | None,
    ) -> list[str]:
        texts = [best]
        for rank in range(1, max(map(len, candidates), default=1)):
            chosen = [ranked[min(rank, len(ranked) - 1)] for ranked in candidates]
            results = self._translate(text.translated, chosen, check_cancelled, options, glossary, retry=False)
            texts.append(text.joined([result.text for result in results]))
        return list(dict.fromkeys(texts))[1:]


def _default_options(path: Path) -> DecodingOptions:
    try:
        content = read_plain(path, YAML_LIMIT)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    return from_yaml(content, DecodingOptions, str(path))


def _names(path: Path) -> Names:
    try:
        return Names.from_bytes(read_plain(path, NAMES_LIMIT))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except UserError as error:
        raise UserError(str(error) if str(path) in str(error) else f"{path}: {error}") from None


def _valid(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced, which cannot be encoded."""
    if not isinstance(text, str):
        raise UserError(f"expected a text, got {reprlib.repr(text)}")
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
