"""latentmt and CTranslate2 on one CPU core, side by side: BLEU, chrF and CPU milliseconds a sentence.

    pip install ctranslate2
    python benchmarks/cpu.py --src dev.de --ref dev.en --timed 200

The peer is the model's own teacher (the shipped reranker), converted by CTranslate2's spec API and run in int8, greedy
and with beam 4. All systems translate the same sentences, one at a time with one thread, and take turns. The first
`--timed` sentences are translated three times, and the smallest CPU time of each counts, so that other work on the
machine counts little.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import ctranslate2
import numpy as np
import torch
from ctranslate2.specs import TransformerSpec

from latentmt.data.text import all_text, read_lines
from latentmt.data.tokenizer import BOS, EOS, UNK, Tokenizer
from latentmt.engines.backend import Backend
from latentmt.engines.torch_engine import torch_engine
from latentmt.measure.machine import Machine
from latentmt.measure.quality import measure
from latentmt.models.teacher import Teacher
from latentmt.options import DecodingOptions
from latentmt.results import Candidate
from latentmt.translator import Translator

ROUNDS = 3


def convert(teacher: Teacher, tokenizer: Tokenizer, folder: Path) -> None:
    """Write a teacher as a CTranslate2 model in int8. Pieces are named by their ids."""
    encoder, decoder = teacher.encoder, teacher.decoder_stack
    heads = decoder.size.heads
    spec = TransformerSpec.from_config((len(encoder.layers), len(decoder.layers)), heads, pre_norm=True)
    keys_values = decoder.source_keys_values
    weights, biases = (
        _array(tensor).reshape(len(decoder.layers), 2, -1, *tensor.shape[1:])
        for tensor in (keys_values.weight, keys_values.bias)
    )
    for side, stack in ((spec.encoder, encoder), (spec.decoder, decoder)):
        embedding = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embedding.weight, side.scale_embeddings = _array(teacher.embedding.weight), True
        side.position_encodings.encodings = _array(teacher.embedding.positions.table)
        _norm(side.layer_norm, stack.norm)
        for number, (written, layer) in enumerate(zip(side.layer, list[Any](stack.layers), strict=True)):
            _norm(written.self_attention.layer_norm, layer.self_norm)
            _linear(written.self_attention.linear[0], layer.self_attention.query_key_value)
            _linear(written.self_attention.linear[1], layer.self_attention.out)
            if side is spec.decoder:
                _norm(written.attention.layer_norm, layer.cross_norm)
                _linear(written.attention.linear[0], layer.cross_attention.query)
                written.attention.linear[1].weight = weights[number].reshape(-1, weights.shape[-1])
                written.attention.linear[1].bias = biases[number].reshape(-1)
                _linear(written.attention.linear[2], layer.cross_attention.out)
            _norm(written.ffn.layer_norm, layer.feed_norm)
            _linear(written.ffn.linear_0, layer.feed_forward.inner)
            _linear(written.ffn.linear_1, layer.feed_forward.out)
    spec.decoder.projection.weight = _array(teacher.embedding.weight)
    names = [str(id_) for id_ in range(tokenizer.size)]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = str(UNK), str(BOS), str(EOS)
    spec.config.decoder_start_token = str(BOS)
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization="int8")
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    return tensor.detach().float().numpy().copy()  # the converter scales in place


def _linear(written: Any, layer: Any) -> None:
    written.weight, written.bias = _array(layer.weight), _array(layer.bias)


def _norm(written: Any, layer: Any) -> None:
    written.gamma, written.beta = _array(layer.weight), _array(layer.bias)


class CTranslate2Engine:
    """The part of a `Backend` that plain translation needs, by CTranslate2: so the translator handles text as ever."""

    methods: ClassVar = ["teacher"]
    default_method = "teacher"
    rerankers: ClassVar = ["none"]
    latent_dim = None

    def __init__(self, folder: Path) -> None:
        self._model = ctranslate2.Translator(str(folder), device="cpu", intra_threads=1, inter_threads=1)

    def best(
        self, sentences: Sequence[Sequence[int]], options: DecodingOptions, check_cancelled: object = None
    ) -> list[Candidate]:
        results = self._model.translate_batch(
            [[str(id_) for id_ in sentence] for sentence in sentences],
            beam_size=options.beam,
            length_penalty=1,
            max_decoding_length=2 * max(map(len, sentences), default=0) + 10,
            return_scores=True,
        )
        ids = [[int(piece) for piece in result.hypotheses[0]] for result in results]
        return [Candidate(one, one, result.scores[0]) for one, result in zip(ids, results, strict=True)]


def run(
    systems: dict[str, Callable[[str], str]], sources: list[str], timed: int
) -> tuple[dict[str, list[str]], dict[str, list[float]]]:
    """The translations of all sources by each system, and the CPU milliseconds of the first ones."""
    texts: dict[str, list[str]] = {name: [] for name in systems}
    times: dict[str, list[float]] = {name: [] for name in systems}
    for number, source in enumerate(sources):
        for name, translate in systems.items():
            texts[name].append(translate(source))
        for name, translate in systems.items() if number < timed else ():
            spent = []
            for _ in range(ROUNDS):
                start = time.process_time()
                translate(source)
                spent.append(1e3 * (time.process_time() - start))
            times[name].append(min(spent))
    return texts, times


def main() -> None:
    """Translate, time, score, print a table, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=None)
    parser.add_argument("--src", type=Path, required=True)
    parser.add_argument("--ref", type=Path, required=True)
    parser.add_argument("--timed", type=int, default=200)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sources, references = (list(all_text(read_lines([path]))) for path in (arguments.src, arguments.ref))
    translator = Translator.load(arguments.model, "cpu", threads=1)
    chosen = {
        "L=0": translator.options(method="prior", steps=0),
        "score-1": translator.options(method="score", steps=1),
        f"default: {translator.options()}": translator.options(),
    }
    systems: dict[str, Callable[[str], str]] = {
        name: lambda text, options=options: translator.translations([text], options)[0].text  # type: ignore[misc]
        for name, options in chosen.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        teacher = torch_engine(translator.backend).networks.teacher
        assert teacher is not None
        convert(teacher, translator.tokenizer, Path(folder))
        peer = translator.with_backend(cast(Backend, CTranslate2Engine(Path(folder))))
        for beam in (1, 4):
            # What is lost of a sentence is put back by attention, which this engine does not have: so it is left out.
            options = DecodingOptions("teacher", beam=beam, verbatim=False)
            systems[f"CTranslate2 int8, beam {beam}"] = lambda text, options=options: (  # type: ignore[misc]
                peer.translations([text], options)[0].text
            )
        texts, times = run(systems, sources, arguments.timed)
    rows = {}
    for name in systems:
        quality = measure(texts[name], [[] for _ in texts[name]], [references])
        best = times[name]
        rows[name] = {
            "bleu": quality.bleu.value,
            "chrf": quality.chrf.value,
            "ms_mean": statistics.fmean(best),
            "ms_median": statistics.median(best),
            "signature": quality.bleu.signature,
        }
        scores = f"BLEU {quality.bleu.value:5.1f}  chrF {quality.chrf.value:5.1f}"
        print(f"{name:<40} {scores}  {statistics.fmean(best):5.1f} ms")
    facts = {
        "machine": Machine.from_translator(translator).versions | {"ctranslate2": ctranslate2.__version__},
        "cpu": platform.processor() or platform.machine(),
        "sentences": len(sources),
        "timed": arguments.timed,
        "tokens": statistics.fmean(map(len, translator.tokenizer.encode(sources[: arguments.timed]))),
        "models": translator.fingerprints,
    }
    if arguments.json:
        arguments.json.write_text(json.dumps(facts | {"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
