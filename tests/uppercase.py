"""An engine without networks: it translates to capital letters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from latentmt.data.tokenizer import Tokenizer
from latentmt.engines.backend import CheckCancelled, never_cancelled
from latentmt.options import DecodingOptions
from latentmt.results import Annotation, Candidate, Candidates, SentenceTrace

LOG_PROB = math.log(0.5)


class UppercaseEngine:
    """Translates every sentence to upper case. The second candidate is the sentence itself."""

    methods: Sequence[str] = ["upper"]
    hints: dict[str, str] = {"upper": "capital letters"}  # noqa: RUF012 (as the protocol has it)
    default_method = "upper"
    rerankers: Sequence[str] = ["none", "decoder"]
    has_language_model = False
    latent_dim = None
    on_gpu = False
    cores = 1
    info: dict[str, Any] = {"device": "dictionary", "dtype": "text", "batch_tokens": 1}  # noqa: RUF012 (as the protocol has it)

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def candidates(
        self,
        sentences: Sequence[Sequence[int]],
        options: DecodingOptions,
        check_cancelled: CheckCancelled = never_cancelled,
    ) -> list[Candidates]:
        check_cancelled()
        texts = self._tokenizer.decode(sentences)
        upper = [ids[:-1] for ids in self._tokenizer.encode([text.upper() for text in texts])]
        return [
            Candidates([Candidate(list(source[:-1]), list(source[:-1]), -2.0), Candidate(target, target, -1.0)], 1)
            for source, target in zip(sentences, upper, strict=True)
        ]

    def best(
        self,
        sentences: Sequence[Sequence[int]],
        options: DecodingOptions,
        check_cancelled: CheckCancelled = never_cancelled,
    ) -> list[Candidate]:
        return [found.all[found.best] for found in self.candidates(sentences, options, check_cancelled)]

    def annotate(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        check_cancelled: CheckCancelled = never_cancelled,
        log_probs: bool = False,
    ) -> list[Annotation]:
        """Every token attends to the source token at its relative position."""
        annotations = []
        for source, target in zip(sources, targets, strict=True):
            attention = np.zeros((len(target), len(source) - 1), dtype=np.float32)
            for position in range(len(target)):
                attention[position, position * (len(source) - 1) // len(target)] = 1.0
            annotations.append(Annotation(attention, [LOG_PROB] * len(target) if log_probs else []))
        return annotations

    def trace(
        self, sentence: list[int], options: DecodingOptions, check_cancelled: CheckCancelled = never_cancelled
    ) -> SentenceTrace:
        raise NotImplementedError

    def field_around(
        self, trace: SentenceTrace, options: DecodingOptions, position: int, points: Sequence[Sequence[float]]
    ) -> list[list[float]]:
        raise NotImplementedError

    def warmup(
        self, options: DecodingOptions, max_length: int, batches: Sequence[int] = (1,), compiled: bool = True
    ) -> None:
        return None
