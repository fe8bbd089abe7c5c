"""Beam search for the teacher, one sentence at a time: the algorithm of `infer/beam.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latentmt.data.tokenizer import BOS, EOS, PAD
from latentmt.engines.onnx.teacher import Decoder, OnnxTeacher
from latentmt.options import BeamConfig
from latentmt.results import Candidate, without_special


@dataclass(frozen=True)
class _Hypothesis:
    ids: list[int]
    log_prob: float
    parent: int
    """Its place among the hypotheses of the step before."""

    def score(self, penalty: float) -> float:
        """The log-probability divided by the length to the power of the penalty."""
        return float(self.log_prob / len(self.ids) ** penalty)


def beam_search(teacher: OnnxTeacher, source: Sequence[int], config: BeamConfig) -> Candidate:
    """The best target of a source."""
    decoder, limit = Decoder(teacher, source), config.max_target_length(len(source))
    live, finished = [_Hypothesis([], 0.0, 0)], list[_Hypothesis]()
    penalty, ended = config.length_penalty, 0
    for length in range(1, limit + 1):
        best = _continued(decoder, live, 2 * config.beam)
        ending = [hypothesis for hypothesis in best[: config.beam] if hypothesis.ids[-1] == EOS]
        live = [hypothesis for hypothesis in best if hypothesis.ids[-1] != EOS][: config.beam]
        ended += len(ending)
        finished = sorted([*finished, *ending], key=lambda hypothesis: -hypothesis.score(penalty))[:1]
        if length == limit and not finished:
            finished = live[:1]
        # A log-probability only falls, so a live hypothesis can at most score its present one at the maximum length.
        unbeatable = finished and live and finished[0].score(penalty) >= live[0].log_prob / limit**penalty
        if ended >= config.beam or not live or unbeatable:
            break
    ids = without_special(finished[0].ids)
    return Candidate(ids, ids, finished[0].score(penalty))


def _continued(decoder: Decoder, live: Sequence[_Hypothesis], count: int) -> list[_Hypothesis]:
    """The best continuations of hypotheses by one token, the best first."""
    previous = [hypothesis.ids[-1] if hypothesis.ids else BOS for hypothesis in live]
    # Of one hypothesis the best `beam` and EOS may be needed. PAD and BOS are never written.
    log_probs, ids = decoder.next_tokens(previous, [hypothesis.parent for hypothesis in live], count // 2 + 3)
    so_far = np.array([[hypothesis.log_prob] for hypothesis in live])
    total = np.where((ids == PAD) | (ids == BOS), -np.inf, so_far + log_probs)
    order = np.argsort(-total, axis=None, kind="stable")[:count]
    rows, columns = np.unravel_index(order, total.shape)
    entries = zip(rows.tolist(), ids[rows, columns].tolist(), total[rows, columns].tolist(), strict=True)
    return [_Hypothesis([*live[row].ids, id_], value, row) for row, id_, value in entries if value > -np.inf]
