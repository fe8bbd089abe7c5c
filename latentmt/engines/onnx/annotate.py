"""Annotates a given target token by token: cross-attention to the source, and log-probability (`infer/annotate.py`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latentmt.data.tokenizer import EOS
from latentmt.engines.onnx.latent import Layout, OnnxLatent
from latentmt.engines.onnx.teacher import OnnxTeacher
from latentmt.results import Annotation


def annotate(
    model: OnnxLatent | None,
    teacher: OnnxTeacher | None,
    source: Sequence[int],
    target: Sequence[int],
    log_probs: bool,
) -> Annotation:
    """Annotate a pair, with log-probabilities if they are asked for. The source ends with EOS, the target does not."""
    scores = np.zeros(0)
    if model:
        encoded, ids = model.encode(list(source)), np.array([[*target, EOS]], dtype=np.int64)
        layout = Layout.from_lengths(np.array([ids.shape[1]]))
        z = model.posterior(ids, layout, model.posterior_memory(encoded)).mean
        attention = model.attention(z, encoded)
        if log_probs and not teacher:
            scores = model.log_prob(z, ids, layout, encoded)[0]
    if teacher and not model:
        attention = teacher.attention(source, target)
    if teacher and log_probs:
        scores = teacher.log_probs(source, [target])[0]
    squares = np.square(attention[: len(target), : len(source) - 1])
    sharpened = squares / np.maximum(squares.sum(1, keepdims=True), np.float32(1e-12))
    return Annotation(sharpened, scores[: len(target)].tolist() if log_probs else [])
