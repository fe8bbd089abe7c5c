"""latentmt and CTranslate2 on CPU cores, side by side: BLEU, chrF, and CPU milliseconds a sentence.

    pip install ctranslate2
    python benchmarks/cpu.py --set NAME dev.de dev.en --json cpu.json --figure FOLDER

Systems: an exported model on the ONNX engine (int8), the same in torch (fp32), and as a peer the autoregressive
model in each `--student FOLDER` of bundles in CTranslate2 (int8), greedy and with beam 4.

Every system has a process of its own, all of them on the same core. They take turns: each translates a sentence three
times, and the smallest CPU time counts, so that other work on the machine counts little. BLEU and chrF are of whole
sets. `--bulk N` also gives each system a fresh process and the first N sentences of each set at once, on one core and
on two. That is wall time, so the machine has to be idle.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import ctranslate2
import numpy as np
import torch
from ctranslate2.specs import TransformerSpec

from latentmt.data.text import all_text, read_lines
from latentmt.data.tokenizer import BOS, EOS, UNK, Tokenizer
from latentmt.engines.backend import Backend
from latentmt.engines.torch_engine import torch_engine
from latentmt.files import make_folder
from latentmt.installed import find_model
from latentmt.measure.quality import measure
from latentmt.models.teacher import Teacher
from latentmt.options import DecodingOptions
from latentmt.results import Candidate
from latentmt.translator import Translator

ROUNDS = 3
LABELS = {
    ("onnx", "L=0"): (-5, -6, "right"),
    ("onnx", "L=0, language model"): (-4, 4, "right"),
    ("onnx", "delta-1"): (4, -8, "left"),
    ("torch", "default"): (0, -11, "center"),
    ("ctranslate2", "6 + 2 layers, greedy"): (-5, -2, "right"),
    ("ctranslate2", "teacher, beam 4"): (-5, 2, "right"),
    ("ctranslate2", "teacher, greedy"): (4, -8, "left"),
}
"""Where names stand in the figure, by engine and name: an offset and an alignment. Others are to the right."""
Engine = Literal["onnx", "torch", "ctranslate2"]


@dataclass(frozen=True)
class System:
    """A way of translating. `options`: those of `translate`, the model's own if there are none."""

    name: str
    engine: Engine
    model: str
    options: dict[str, Any]
    scored: bool = True
    """Whether whole sets are translated, for BLEU and chrF, and the bulk is timed."""
    forced: bool = False
    """Whether a translation by CTranslate2 has as many pieces as its source: for a model that was not trained."""

    def translator(self, cores: int) -> Translator:
        """The system in this process, on so many cores."""
        if self.engine != "ctranslate2":
            return Translator.load(self.model, "cpu", 1 if cores == 1 else None, engine=self.engine)
        folder = find_model(self.model)
        translator = Translator.load(folder, "cpu", threads=1, engine="torch")
        teacher = torch_engine(translator.backend).networks.teacher
        assert teacher is not None
        with tempfile.TemporaryDirectory() as converted:
            convert(teacher, translator.tokenizer, Path(converted))
            engine = CTranslate2Engine(Path(converted), cores, translator.backend, self.forced)
            return translator.with_backend(cast(Backend, engine))


@dataclass(frozen=True)
class TestSet:
    """Sentences and their references."""

    name: str
    sources: list[str]
    references: list[str]


@dataclass
class Row:
    """What was measured of a system, by test set unless it says something else."""

    name: str
    engine: str
    bleu: dict[str, float]
    chrf: dict[str, float]
    milliseconds: dict[str, float]
    """CPU time a sentence, the mean."""
    median: float
    """Of all timed sentences."""
    bulk: dict[int, float]
    """Sentences a second of wall time, by the number of cores."""


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
    has_language_model = False
    latent_dim = None

    def __init__(self, folder: Path, cores: int, attention: Backend, forced: bool = False) -> None:
        """`attention`: the same teacher in torch, which says where a span belongs that was lost in translation."""
        self._forced = forced
        self._model = ctranslate2.Translator(str(folder), device="cpu", intra_threads=1, inter_threads=cores)
        self.annotate = attention.annotate

    def best(
        self, sentences: Sequence[Sequence[int]], options: DecodingOptions, check_cancelled: object = None
    ) -> list[Candidate]:
        longest = max(map(len, sentences), default=0)
        results = self._model.translate_batch(
            [[str(id_) for id_ in sentence] for sentence in sentences],
            beam_size=options.beam,
            length_penalty=1,
            max_decoding_length=longest if self._forced else 2 * longest + 10,
            min_decoding_length=longest if self._forced else 1,
            return_scores=True,
            max_batch_size=32,
        )
        ids = [[int(piece) for piece in result.hypotheses[0]] for result in results]
        return [Candidate(one, one, result.scores[0]) for one, result in zip(ids, results, strict=True)]


def serve(system: System, core: int, pipe: Connection) -> None:
    """Translate texts that arrive on a pipe, and answer with their translations and CPU milliseconds."""
    os.sched_setaffinity(0, {core})
    translator = system.translator(1)
    options = translator.options(**system.options)
    while (request := pipe.recv()) is not None:
        texts, rounds = request
        spent, found = [], []
        for _ in range(rounds):
            start = time.process_time()
            found = [one.text for one in translator.translations(texts, options)]
            spent.append(1e3 * (time.process_time() - start))
        pipe.send((found, min(spent)))


def bulk(system: System, texts: list[str], cores: int, pipe: Connection) -> None:
    """Translate all texts at once on so many cores; answer with the seconds that it took."""
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
    translator = system.translator(cores)
    options = translator.options(**system.options)
    translator.translations(texts[:10], options)
    start = time.perf_counter()
    translator.translations(texts, options)
    pipe.send(time.perf_counter() - start)


def take_turns(systems: Sequence[System], sets: Sequence[TestSet], timed: int, core: int) -> list[Row]:
    """Time the first sentences of each set by every system in turn, and translate all of them."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for system in systems:
        here, there = context.Pipe()
        process = context.Process(target=serve, args=(system, core, there), daemon=True)
        process.start()
        pipes.append(here)
        processes.append(process)
    times: list[dict[str, list[float]]] = [{each.name: [] for each in sets} for _ in systems]
    rows = [Row(system.name, system.engine, {}, {}, {}, 0.0, {}) for system in systems]
    for each in sets:
        for source in each.sources[:timed]:
            for pipe, spent in zip(pipes, times, strict=True):
                pipe.send(([source], ROUNDS))
                spent[each.name].append(pipe.recv()[1])
        for system, pipe, row, spent in zip(systems, pipes, rows, times, strict=True):
            row.milliseconds[each.name] = statistics.fmean(spent[each.name])
            if system.scored:
                pipe.send((each.sources, 1))
                texts, _ = pipe.recv()
                quality = measure(texts, [[] for _ in texts], [each.references])
                row.bleu[each.name], row.chrf[each.name] = quality.bleu.value, quality.chrf.value
            print(f"{each.name:<14} {row.name:<44} {show(row, each.name)}", flush=True)
    for row, spent in zip(rows, times, strict=True):
        row.median = statistics.median(value for values in spent.values() for value in values)
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send(None)
        process.join()
    return rows


def show(row: Row, name: str) -> str:
    """The numbers of a system on a set."""
    quality = f"BLEU {row.bleu[name]:5.2f}  chrF {row.chrf[name]:5.2f}" if name in row.bleu else ""
    return f"{quality:<24} {row.milliseconds[name]:6.2f} ms"


def time_bulk(systems: Sequence[System], rows: Sequence[Row], texts: list[str]) -> None:
    """Translate all texts at once by each system, on one core and on two."""
    context = multiprocessing.get_context("spawn")
    for system, row in zip(systems, rows, strict=True):
        if not system.scored:
            continue
        for cores in (1, 2):
            here, there = context.Pipe()
            process = context.Process(target=bulk, args=(system, texts, cores, there), daemon=True)
            process.start()
            row.bulk[cores] = len(texts) / here.recv()
            process.join()
        print(f"{row.name:<44} " + ", ".join(f"{n} core(s): {rate:6.1f}/s" for n, rate in row.bulk.items()), flush=True)


def draw(rows: Sequence[Row], folder: Path) -> None:
    """Quality against time, means over the sets: a panel for BLEU and one for chrF."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    from latentmt.plots.style import WIDTH, write_figure

    styles = {"onnx": ("#009E73", "o"), "torch": ("#999999", "s"), "ctranslate2": ("#D55E00", "^")}
    labels = {"onnx": "latentmt, int8", "torch": "latentmt, torch fp32", "ctranslate2": "CTranslate2, int8"}
    scored = [row for row in rows if row.bleu]

    def figure() -> Figure:
        drawn = Figure(figsize=(WIDTH, 3.4), layout="constrained")
        for axes, measure_ in zip(drawn.subplots(1, 2), ("BLEU", "chrF"), strict=True):
            for row in scored:
                color, marker = styles[row.engine]
                x = statistics.fmean(row.milliseconds.values())
                y = statistics.fmean((row.bleu if measure_ == "BLEU" else row.chrf).values())
                axes.plot(x, y, color=color, marker=marker, linestyle="none", label=labels[row.engine])
                name = row.name.partition(": ")[2]
                dx, dy, ha = LABELS.get((row.engine, name), (5, -2, "left"))
                axes.annotate(name, (x, y), (dx, dy), textcoords="offset points", ha=ha, fontsize=6.5, color=color)
            axes.set_xscale("log")
            axes.set_xlim(1, 100)
            axes.set_xticks([1, 2, 5, 10, 20, 50])
            axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_title(f"mean {measure_}")
            axes.set_xlabel("CPU ms a sentence, one core")
        named = dict(zip(*reversed(drawn.axes[0].get_legend_handles_labels()), strict=True))
        drawn.axes[0].legend(named.values(), named.keys(), loc="center right")
        return drawn

    write_figure(figure, make_folder(folder), "cpu")


def systems_of(model: str, students: Sequence[str]) -> list[System]:
    """What is compared: the ways of a model on both engines, and autoregressive models in CTranslate2."""
    ways: dict[str, dict[str, Any]] = {
        "L=0": {"method": "prior", "steps": 0, "length_bias": 0.1},
        "L=0, language model": {"method": "prior", "steps": 0, "length_bias": 0.1, "lm_weight": 0.27},
        "delta-1": {"method": "delta", "steps": 1, "length_bias": 0.1},
        "default": {},
    }
    found = [System(f"latentmt int8: {name}", "onnx", model, way) for name, way in ways.items()]
    found += [System(f"latentmt torch: {name}", "torch", model, way, name == "default") for name, way in ways.items()]
    for student in students:
        for beam, how in ((1, "greedy"), (4, "beam 4")):
            # What is lost of a sentence is put back by attention, which this engine does not have: so it is left out.
            options = {"method": "teacher", "beam": beam, "verbatim": False}
            found.append(System(f"CTranslate2 int8: {Path(student).name}, {how}", "ctranslate2", student, options))
    return found


def main() -> None:
    """Translate, time, score, print a table, and write JSON and a figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="deen")
    parser.add_argument("--student", action="append", default=[], help="a folder with a teacher's bundle")
    parser.add_argument("--set", action="append", nargs=3, metavar=("NAME", "SRC", "REF"), required=True)
    parser.add_argument("--sentences", type=int, help="how many of each set are translated")
    parser.add_argument("--timed", type=int, default=200, help="how many of each set are timed")
    parser.add_argument("--bulk", type=int, default=0, help="how many of each set are translated at once")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path, help="the folder of the figure")
    arguments = parser.parse_args()
    sets = [
        TestSet(name, *(list(all_text(read_lines([Path(path)])))[: arguments.sentences] for path in paths))
        for name, *paths in arguments.set
    ]
    systems = systems_of(arguments.model, arguments.student)
    rows = take_turns(systems, sets, arguments.timed, arguments.core)
    if arguments.bulk:
        time_bulk(systems, rows, [text for each in sets for text in each.sources[: arguments.bulk]])
    tokenizer = Translator.load(arguments.model, "cpu", engine="onnx").tokenizer
    facts = {
        "cpu": platform.processor() or platform.machine(),
        "versions": {"ctranslate2": ctranslate2.__version__, "torch": str(torch.__version__)},
        "sentences": {each.name: len(each.sources) for each in sets},
        "timed": arguments.timed,
        "bulk": arguments.bulk,
        "tokens": {
            each.name: statistics.fmean(map(len, tokenizer.encode(each.sources[: arguments.timed]))) for each in sets
        },
        "rows": [asdict(row) for row in rows],
    }
    if arguments.json:
        arguments.json.write_text(json.dumps(facts, indent=2) + "\n")
    if arguments.figure:
        draw(rows, arguments.figure)


if __name__ == "__main__":
    main()
