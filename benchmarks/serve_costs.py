"""Compares the server's estimates of time with the truth, for all ways of translating.

    python benchmarks/serve_costs.py --src test.de [--model NAME] [--device cpu] [--engine onnx]

SRC is plain text, a sentence per line. The constants are measured as a worker does when it starts. Each way then
translates a short sentence, a long one and a text of some sentences. The truth is measured in the same way: the
shortest of several times, in seconds of CPU, so that a busy machine does not matter, or of a clock for a GPU.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from latentmt.display import output, table
from latentmt.engines.backend import never_cancelled
from latentmt.options import DecodingOptions
from latentmt.serve.admission import Limits
from latentmt.serve.costs import measure_costs, shortest
from latentmt.serve.facts import ModelFacts
from latentmt.serve.models import Models
from latentmt.serve.schemas import TraceRequest, TranslateRequest
from latentmt.serve.service import Request, Service
from latentmt.translator import Translator

WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"method": "prior"},
    {"method": "score"},
    {"method": "score", "steps": 8},
    {"method": "delta"},
    {"method": "delta", "steps": 4},
    {"method": "energy"},
    {"lengths": 5, "samples": 5, "rerank": "teacher"},
    {"lengths": 5, "samples": 5, "rerank": "decoder"},
    {"lengths": 5, "samples": 5, "rerank": "elbo"},
    {"lengths": 3, "rerank": "marginal"},
    {"lengths": 4, "samples": 4, "steps": 4, "rerank": "marginal"},
    {"lengths": 8, "samples": 8, "steps": 2, "rerank": "teacher"},
    {"method": "teacher"},
)


KINDS = ("translated", "HTML", "traced")


def request(kind: str, text: str) -> Request:
    """A request as a server gets it. In HTML every fourth word is in bold type."""
    if kind == "traced":
        return TraceRequest(q=text)
    if kind == "translated":
        return TranslateRequest(q=text)
    words = [f"<b>{word}</b>" if number % 4 == 1 else word for number, word in enumerate(text.split())]
    return TranslateRequest(q=f"<p>{' '.join(words)}</p>", format="html")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--src", type=Path, required=True)
    parser.add_argument("--model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--engine", default="auto")
    arguments = parser.parse_args()
    translator = Translator.load(arguments.model, arguments.device, 1, engine=arguments.engine)
    translator.translate("Warm.")
    start = time.perf_counter()
    costs = measure_costs(translator)
    took = time.perf_counter() - start
    facts = ModelFacts.of(translator, costs)
    service = Service(translator, facts.pair, Models([facts]), Limits(timeout=1e6))
    lines = sorted(filter(None, arguments.src.read_text(encoding="utf-8").splitlines()), key=len)
    texts = {"short": lines[len(lines) // 10], "long": lines[-len(lines) // 20], "text": " ".join(lines[::30])}
    rows, ratios = [], []
    for way in WAYS:
        if (
            way.get("method", "prior") not in translator.methods
            or way.get("rerank", "none") not in translator.backend.rerankers
        ):
            continue
        for kind in KINDS:
            if kind == "traced" and way.get("method") == "teacher":
                continue
            options = translator.options(**way)
            row = [", ".join(f"{name} {value}" for name, value in way.items()) or "as it comes", kind]
            for text in texts.values():
                asked = request(kind, text)
                estimate = service.plan(asked, options, never_cancelled).seconds

                def respond(asked: Request = asked, options: DecodingOptions = options) -> object:
                    plan = service.plan(asked, options, never_cancelled)
                    return list(service.run([plan], options, never_cancelled))

                truth = shortest(respond, translator.backend.on_gpu)
                ratios.append(estimate / truth)
                row.append(f"{1e3 * estimate:,.0f} / {1e3 * truth:,.0f} ms  × {estimate / truth:.2f}")
            rows.append(tuple(row))
            print(" | ".join(row), flush=True)
    output().print(table(f"estimate / truth (measured in {took:.1f} s)", ("way", "", *texts), rows))
    within = sum(0.5 <= ratio <= 2 for ratio in ratios)
    print(f"{within} of {len(ratios)} within 2 ×, from × {min(ratios):.2f} to × {max(ratios):.2f}")
    print(json.dumps({"benchmark": "serve_costs", "ratios": ratios, "seconds": took, "costs": asdict(costs)}))


if __name__ == "__main__":
    main()
