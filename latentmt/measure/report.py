"""Everything a report says about a model, measured part by part into one JSON tree.

Whatever is measured with the same models, test files, settings and machine is measured once (`parts`). Translations are
kept with the parts and left out of the tree. How it is drawn and written up is not known here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from latentmt.errors import UserError
from latentmt.measure.bootstrap import paired_bootstrap
from latentmt.measure.evaluate import EvalSet, Wanted, measure_way, ways_of
from latentmt.measure.landscape import choose_sentence, landscape
from latentmt.measure.latency import Source, first_texts, measure_speed
from latentmt.measure.likelihood import SAMPLES, likelihoods
from latentmt.measure.machine import machine
from latentmt.measure.paper import row_of
from latentmt.measure.parts import Parts
from latentmt.measure.quality import require_sacrebleu
from latentmt.measure.samples import sampled, take_samples
from latentmt.measure.tokens import count_tokens, outputs_along
from latentmt.options import DecodingOptions, Method
from latentmt.translator import Translator

FORMAT = 1
"""Raised whenever a tree or a part written before could be misread."""
REFINING: tuple[Method, ...] = ("delta", "energy", "score")
"""In the paper's order."""
_CURVE_POINTS = 300
"""Of a training curve, at most."""
_TEXTS = "texts"
"""Under this key a part keeps translations, for itself."""


@dataclass(frozen=True)
class Settings:
    """How much is measured, and with which settings."""

    steps: tuple[int, ...] = (1, 2, 4)
    lengths: int = 5
    samples: int = 5
    """Search: so many lengths, so many latents for each, and the first number of steps."""
    seed: int = 1
    """Of the samples, and of the noise that estimates use."""
    length_bias: float = 0.0
    timed: int = 200
    """Texts that every way is timed on."""
    compiled: bool = False
    """Whether compiled searches are timed, too."""
    judged: int = 500
    """Sentences whose outputs' likelihood is estimated, …"""
    posterior_samples: int = SAMPLES
    """… with so many samples each."""
    shown: int = 8
    """Samples of translations; 0 for none."""

    def __post_init__(self) -> None:
        for name, least in (("timed", 1), ("judged", 1), ("posterior_samples", 2), ("shown", 0)):
            if getattr(self, name) < least:
                raise UserError(f"{name} {getattr(self, name)}: expected {least} or more")


@dataclass(frozen=True)
class Plane:
    """A model whose latents have two entries, to be drawn; and the sentence, unless one is to be chosen."""

    translator: Translator
    example: tuple[str, str] | None = None
    """Source and reference."""


def measure_report(
    translator: Translator,
    texts: EvalSet,
    settings: Settings,
    folder: Path,
    plane: Plane | None = None,
    speed: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """All parts of a report, those that are missing measured now and kept in a folder.

    `speed`: that part, of another report, instead of measuring it.
    """
    require_sacrebleu()
    if translator.latent is None:
        raise UserError("report: there is no latent model")
    if not _sentences(translator, texts.sources):
        raise UserError("report: there is nothing to translate")
    if settings.compiled and not translator.engine.graphed:
        raise UserError("report: only searches on a GPU are compiled")
    common = {
        "format": FORMAT,
        "files": {Path(name).name: content for name, content in texts.files.items()},  # for people: names may be alike
        "text": _hash([texts.sources, texts.references]),
        "sentences": len(texts.sources),
        **machine(translator),
    }
    parts = Parts(folder, common)
    refining = [method for method in REFINING if method in translator.methods]
    all_options = _ways(translator, settings)
    speed = _those(speed, all_options) if speed else None
    drawn = _landscape(parts, texts, plane) if plane else None  # first, since most can be wrong with it
    ways = {row_of(options): _way(parts, translator, texts, options) for options in all_options}
    tree: dict[str, Any] = {
        "format": FORMAT,
        "about": common | {"models": translator.fingerprints, "settings": asdict(settings)},
        "ways": ways,
        "comparisons": _comparisons(parts, texts, ways),
        "tokens": {method: _tokens(parts, translator, texts, settings, method) for method in refining},
        "likelihood": {method: _likelihood(parts, translator, texts, settings, method) for method in refining},
        "speed": speed or _speed(parts, translator, texts, settings, all_options),
        "landscape": drawn,
        "samples": _samples(parts, translator, texts, settings) if settings.shown else None,
    }
    tree["about"]["settings"] |= {name: tree["speed"]["signature"][name] for name in ("timed", "compiled")}
    if plane:
        tree["about"]["plane"] = plane.translator.fingerprints
    return _without_texts(tree)


def training_curves(folder: Path) -> dict[str, Any]:
    """The logs of a work folder's training runs, by stage and kind (`train`, `dev`), as far as there are any."""
    curves: dict[str, Any] = {}
    for path in sorted(folder.glob("training/*/log.jsonl")):
        entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
        kinds = {kind: [entry for entry in entries if entry["kind"] == kind] for kind in ("train", "dev")}
        curves[path.parent.name] = {kind: _thinned(some) for kind, some in kinds.items() if some}
    return curves


def _thinned(entries: list[Any]) -> list[Any]:
    """At most so many, evenly spread, the last among them."""
    step = -(-len(entries) // _CURVE_POINTS)
    return entries[::-step][::-1]


def _ways(translator: Translator, settings: Settings) -> list[DecodingOptions]:
    """Table 1: the teacher, L=0, and every method with every number of steps and with search."""
    methods: tuple[Method, ...] = ("teacher", "prior", *REFINING)
    wanted = Wanted(
        methods=[method for method in methods if method in translator.methods],
        steps=settings.steps,
        lengths=settings.lengths,
        samples=settings.samples,
        rerank="teacher" if translator.teacher else "elbo",
        seed=settings.seed,
        length_bias=settings.length_bias,
        remove_repeats="pieces",  # as the paper does
        verbatim=False,
    )
    return ways_of(translator, wanted)


def _models(translator: Translator, options: DecodingOptions) -> dict[str, str]:
    """The fingerprints of what takes part."""
    kinds = (
        {"teacher"}
        if options.method == "teacher"
        else {"latent", *([options.method] if options.refines else []), options.rerank}
    )
    return {kind: hash_ for kind, hash_ in translator.fingerprints.items() if kind in kinds}


def _way(parts: Parts, translator: Translator, texts: EvalSet, options: DecodingOptions) -> dict[str, Any]:
    def measure() -> dict[str, Any]:
        row = measure_way(translator, texts, options)
        return {"name": str(options), "quality": asdict(row.quality), _TEXTS: row.texts}

    facts = {"options": asdict(options), "models": _models(translator, options), "graphed": translator.engine.graphed}
    return parts.get(str(options), facts, measure)


def _comparisons(parts: Parts, texts: EvalSet, ways: Mapping[str, Any]) -> dict[str, Any]:
    """The paper's orderings, by paired bootstrap in the paper's BLEU."""

    def compared(of: str, against: str) -> dict[str, Any]:
        mine, other = (ways[row]["result"][_TEXTS] for row in (of, against))
        found = paired_bootstrap(mine, other, texts.references, lowercase=True, tokenize="intl")
        return {"of": of, "against": against} | asdict(found)

    pairs = _claims(ways)
    outputs = {row: _hash(way["result"][_TEXTS]) for row, way in ways.items()}
    return parts.get(
        "paired bootstrap", {"outputs": outputs, "pairs": pairs}, lambda: [compared(*pair) for pair in pairs]
    )


def _claims(ways: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the paper says is better than what, as far as both were measured."""
    steps = ("-1", "-2", "-4", " Search")
    pairs = [(f"{method}-1", "L=0") for method in REFINING]
    for better, worse in (("score", "delta"), ("energy", "delta"), ("score", "energy")):
        pairs += [(f"{better}{options}", f"{worse}{options}") for options in steps]
    pairs += [(f"{method} Search", f"{method}-1") for method in REFINING]
    pairs += [("AR b=4", f"{method} Search") for method in REFINING]
    return [pair for pair in pairs if all(row in ways for row in pair)]


def _tokens(parts: Parts, translator: Translator, texts: EvalSet, settings: Settings, method: Method) -> dict[str, Any]:
    def measure() -> Any:
        sentences = _sentences(translator, texts.sources)
        outputs = outputs_along(translator, sentences, method, length_bias=settings.length_bias)
        return [asdict(one) for one in count_tokens(translator, outputs, texts.references[0])]

    options = DecodingOptions(method=method)
    facts = {"models": _models(translator, options), "method": method, "length_bias": settings.length_bias}
    return parts.get(f"tokens along {method}", facts, measure)


def _likelihood(
    parts: Parts, translator: Translator, texts: EvalSet, settings: Settings, method: Method
) -> dict[str, Any]:
    def measure() -> Any:
        sentences = _sentences(translator, texts.sources)[: settings.judged]
        outputs = outputs_along(translator, sentences, method, length_bias=settings.length_bias)
        name, samples = f"log p along {method}", settings.posterior_samples
        return [asdict(one) for one in likelihoods(translator, sentences, outputs, samples, settings.seed, name)]

    facts = {
        "models": _models(translator, DecodingOptions(method=method)),
        "method": method,
        "length_bias": settings.length_bias,
        "judged": settings.judged,
        "samples": settings.posterior_samples,
        "seed": settings.seed,
    }
    return parts.get(f"log p along {method}", facts, measure)


def _speed(
    parts: Parts, translator: Translator, texts: EvalSet, settings: Settings, all_options: Sequence[DecodingOptions]
) -> dict[str, Any]:
    """All ways in one part: only times of one run are compared."""

    def measure() -> Any:
        source = Source(first_texts(translator, texts.sources, settings.timed), {})
        found = measure_speed(translator, source, all_options, [], settings.compiled)
        speeds = [asdict(speed) | {"row": row_of(speed.options)} for speed in found.results]
        return {"texts": found.texts, "sentences": found.sentences, "threads": found.threads, "speeds": speeds}

    facts = {
        "models": translator.fingerprints,
        "ways": [asdict(options) for options in all_options],
        "timed": settings.timed,
        "compiled": settings.compiled,
        "threads": torch.get_num_threads(),
        "graphed": translator.engine.graphed,
    }
    return parts.get("speed", facts, measure)


def _those(speed: dict[str, Any], all_options: Sequence[DecodingOptions]) -> dict[str, Any]:
    """The times of these ways only."""
    rows = {row_of(options) for options in all_options}
    speeds = [one for one in speed["result"]["speeds"] if one["row"] in rows]
    if not speeds:
        raise UserError("report: the report that times are taken from has timed nothing that this model does")
    return speed | {"result": speed["result"] | {"speeds": speeds}}


def _landscape(parts: Parts, texts: EvalSet, plane: Plane) -> dict[str, Any]:
    def measure() -> Any:
        references, model = texts.references[0], plane.translator
        if plane.example:
            return asdict(landscape(model, *plane.example))
        number = choose_sentence(model, texts.sources, references)
        return asdict(landscape(model, texts.sources[number], references[number])) | {"line": number + 1}

    return parts.get("landscape", {"models": plane.translator.fingerprints, "example": plane.example}, measure)


def _samples(parts: Parts, translator: Translator, texts: EvalSet, settings: Settings) -> dict[str, Any]:
    options = replace(sampled(translator, seed=settings.seed), remove_repeats="pieces", verbatim=False)

    def measure() -> Any:
        found = take_samples(translator, texts.sources, texts.references, settings.shown, options)
        return {"method": options.method, "steps": options.steps, "samples": [asdict(sample) for sample in found]}

    facts = {"models": _models(translator, options), "options": asdict(options), "shown": settings.shown}
    return parts.get("samples", facts, measure)


def _sentences(translator: Translator, texts: Sequence[str]) -> list[list[int]]:
    return [ids for text in texts for ids in translator.sentences(text)]


def _hash(tree: Any) -> str:
    return hashlib.sha256(json.dumps(tree).encode()).hexdigest()


def _without_texts(tree: dict[str, Any]) -> dict[str, Any]:
    ways = {
        row: part | {"result": {key: value for key, value in part["result"].items() if key != _TEXTS}}
        for row, part in tree["ways"].items()
    }
    return tree | {"ways": ways}
