"""Networks ↔ bundles: builds a network from its configuration, and saves and loads its weights.

Shards are small enough for any file host. A tensor larger than a shard is split along its first axis. The files of a
bundle are described in `bundle`. Nothing here trains or runs a network.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save
from torch import Tensor, nn

from latentmt.bundle import (
    INDEX,
    LANGUAGE_MODEL,
    Bundle,
    BundleFormat,
    TextConfig,
    check_memory,
    check_replaceable,
    fingerprint,
    open_bundle,
    remove_bundle,
)
from latentmt.config import added, to_json, to_yaml
from latentmt.data.tokenizer import Tokenizer
from latentmt.errors import UserError
from latentmt.fields.registry import AnyFieldConfig, field_network
from latentmt.files import make_folder, move, remove, temporary_name, write_atomically
from latentmt.models.latent import LatentConfig, LatentModel, current_weight_name
from latentmt.models.presets import resolved
from latentmt.models.teacher import Teacher, TeacherConfig
from latentmt.ngrams.estimate import NgramConfig
from latentmt.nn.transformer import StackSize
from latentmt.verified import FileFacts

SHARD_BYTES = 15_000_000
SCALE = ".scale"
"""Follows the name of a matrix that is stored as int8: the scales of its rows."""


@dataclass(frozen=True, kw_only=True)
class BundleConfig(TextConfig):
    """The network and the text rules of a bundle: config.yaml."""

    teacher: TeacherConfig | None = None
    latent: LatentConfig | None = None
    """The latent model itself, or that of a field."""
    field: AnyFieldConfig | None = None
    language_model: Annotated[NgramConfig | None, added(None)] = None
    """An n-gram model, which is no network."""

    @property
    def kind(self) -> str:
        if self.language_model:
            return LANGUAGE_MODEL
        if self.teacher:
            return "teacher"
        return self.field.kind if self.field else "latent"

    def parameters(self, vocabulary: int) -> int:
        """About how many parameters the network has, computed without building it."""
        if not (model := self.teacher or self.latent):
            return 0
        encoder = model.encoder
        of_stacks = sum(stack.parameters(2, encoder.width) for stack in self._stacks)
        if self.field:
            return of_stacks
        widths = {model.size.d_model, encoder.width}  # of the embeddings
        return vocabulary * sum(widths) + encoder.parameters(1) + of_stacks

    @property
    def _stacks(self) -> list[StackSize]:
        """The sizes of the decoder stacks."""
        if alone := self.field or self.teacher:
            return [alone.size.stack]
        return self.latent.stacks if self.latent else []

    def network(self, vocabulary: int) -> nn.Module:
        """The network, with initial weights."""
        if self.teacher:
            return Teacher(self.teacher, vocabulary)
        assert self.latent
        if self.field:
            return field_network(self.field, self.latent)
        return LatentModel(self.latent, vocabulary)


@dataclass(frozen=True)
class LoadedBundle:
    """A bundle with its network."""

    config: BundleConfig
    about: BundleFormat
    tokenizer: Tokenizer
    network: nn.Module
    """In evaluation mode, on the requested device."""


def load_bundle(folder: Path, device: torch.device | str = "cpu", kind: str | None = None) -> LoadedBundle:
    """Check a bundle, and its kind if one is given, and build its network."""
    return load_network(open_bundle(folder, kind), device)


def load_network(bundle: Bundle, device: torch.device | str = "cpu") -> LoadedBundle:
    """The network of an opened bundle."""
    config = bundle.config(BundleConfig)
    if not config.teacher and not config.latent:
        raise UserError(f"{bundle.folder / 'config.yaml'}: names neither a teacher nor a latent model")
    if config.kind != bundle.about.kind:
        raise UserError(f"{bundle.folder}: config.yaml is of a {config.kind} model, format.json of another kind")
    parameters = config.parameters(bundle.tokenizer.size)
    check_memory(4 * parameters, str(bundle.folder / "config.yaml"))
    if parameters > 1.5 * bundle.weight_bytes:  # a byte each at the least, so a small file cannot take much memory
        raise _misfit(bundle, f"about {parameters:,} parameters in {bundle.weight_bytes:,} bytes")
    with torch.random.fork_rng(devices=[]):  # loading a model does not change the caller's random state
        network = config.network(bundle.tokenizer.size)
    _fill(network, bundle)
    return LoadedBundle(config, bundle.about, bundle.tokenizer, network.to(device).eval().requires_grad_(False))


def save_bundle(
    folder: Path,
    config: BundleConfig,
    tokenizer: Tokenizer,
    weights: Mapping[str, Tensor],
    *,
    latent: str | None = None,
    facts: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
    parameters: Mapping[str, int] | None = None,
) -> BundleFormat:
    """Write a bundle beside `folder` and rename it when it is complete. A bundle that is there is replaced.

    What is there and not a bundle is not replaced. Weights may be `quantised(…)`. `files` are added to the bundle. They
    are no part of its identity, but for n-grams. `parameters`: how many each part has, if that is not the network's.
    """
    config = _resolved(config)
    check_replaceable(folder)
    temporary = make_folder(temporary_name(folder))
    try:
        if weights:
            _write_shards(temporary, {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()})
        write_atomically(temporary / "config.yaml", to_yaml(config))
        write_atomically(temporary / "tokenizer.model", tokenizer.model)
        parameters = dict(_part_sizes(config, tokenizer) if parameters is None else parameters)
        others = {"MODEL_CARD.md": _card(config, parameters, facts or {}).encode(), **(files or {})}
        for name, content in others.items():
            write_atomically(temporary / name, content)
        written = {path.name: FileFacts.of(path) for path in sorted(temporary.iterdir())}
        about = BundleFormat(
            kind=config.kind,
            fingerprint=fingerprint(written),
            latent=latent,
            parameters=parameters,
            facts=dict(facts or {}),
            settings=dict(settings or {}),
            files=written,
        )
        write_atomically(temporary / "format.json", to_json(about))
        replace_bundle(folder, temporary)
    finally:
        remove(temporary)
    return about


def replace_bundle(folder: Path, new: Path) -> None:
    """Put a new bundle in the place of another. A folder cannot be replaced in one step: `remove_stale` mends a gap."""
    old = temporary_name(folder, "old")
    if (folder / "format.json").exists():  # else it is empty
        move(folder, old)
    move(new, folder)
    if old.exists():
        remove_bundle(old)


def quantised(weights: Mapping[str, Tensor], names: Collection[str]) -> dict[str, Tensor]:
    """Weights as they are shipped: those of these names in int8, with a scale for each row, the others in fp16."""
    stored: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if name in names:
            scale = weight.float().abs().amax(1).clamp(min=1e-12) / 127
            stored[name] = (weight.float() / scale[:, None]).round().to(torch.int8)
            stored[name + SCALE] = scale
        else:
            stored[name] = weight.half() if weight.is_floating_point() else weight
    return stored


def parameter_counts(network: nn.Module) -> dict[str, int]:
    """The number of parameters of each part of a network."""
    counts = {name: sum(p.numel() for p in part.parameters()) for name, part in network.named_children()}
    return {name: count for name, count in counts.items() if count}


def _resolved(config: BundleConfig) -> BundleConfig:
    return replace(
        config,
        teacher=resolved(config.teacher) if config.teacher else None,
        latent=resolved(config.latent) if config.latent else None,
        field=resolved(config.field) if config.field else None,
    )


def _part_sizes(config: BundleConfig, tokenizer: Tokenizer) -> dict[str, int]:
    with torch.device("meta"):
        return parameter_counts(config.network(tokenizer.size))


def _pieces(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The tensors, those larger than a shard split into `name[0]`, `name[1]`, …"""
    for name, tensor in sorted(weights.items()):
        if tensor.nbytes <= SHARD_BYTES:
            yield name, tensor
            continue
        rows = max(1, SHARD_BYTES * len(tensor) // tensor.nbytes)
        for index, part in enumerate(tensor.split(rows)):
            yield f"{name}[{index}]", part.contiguous()


def _write_shards(folder: Path, weights: Mapping[str, Tensor]) -> None:
    shards: list[dict[str, Tensor]] = [{}]
    for name, tensor in _pieces(weights):
        if shards[-1] and sum(t.nbytes for t in shards[-1].values()) + tensor.nbytes > SHARD_BYTES:
            shards.append({})
        shards[-1][name] = tensor
    names = [f"model-{index:05}-of-{len(shards):05}.safetensors" for index in range(1, len(shards) + 1)]
    for name, shard in zip(names, shards, strict=True):
        write_atomically(folder / name, save(shard, {"format": "pt"}))
    index = {
        "metadata": {"total_size": sum(tensor.nbytes for shard in shards for tensor in shard.values())},
        "weight_map": {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard},
    }
    write_atomically(folder / INDEX, json.dumps(index, indent=2) + "\n")


@torch.no_grad()
def _fill(network: nn.Module, bundle: Bundle) -> None:
    """Copy the weights of a bundle into its network, in single precision."""
    weights = network.state_dict()
    scales: dict[str, Tensor] = {}
    integers: set[str] = set()
    parts, filled = dict.fromkeys(weights, 0), dict.fromkeys(weights, 0)
    for part in bundle.tensors(load_tensors):
        name = part.name if part.name in weights else current_weight_name(part.name)
        tensor, of = part.tensor, name.removesuffix(SCALE)
        if of not in weights:
            raise _misfit(bundle, f"{part.name[:80]} is not part of the network")
        if not (tensor.is_floating_point() or (of == name and tensor.dtype == torch.int8)) or not _is_finite(tensor):
            raise UserError(f"{part.file}: {name} is not a tensor of finite numbers")
        if of != name:
            scales[of] = tensor
            continue
        weight, start = weights[name], filled[name]
        end = filled[name] = start + tensor.numel()
        if tensor.shape[1:] != weight.shape[1:] or end > weight.numel() or part.number != parts[name]:
            raise _misfit(bundle, f"{name} is {list(tensor.shape)}, {list(weight.shape)} expected")
        parts[name] += 1
        integers |= {name} if tensor.dtype == torch.int8 else set()
        weight.view(-1)[start:end] = tensor.view(-1)
    for name, weight in weights.items():
        if filled[name] != weight.numel():
            raise _misfit(bundle, f"{name} is {'incomplete' if parts[name] else 'missing'}")
        scaled = name in scales and weight.dim() == 2 and scales[name].shape == weight.shape[:1]
        if (name in scales) != scaled or (name in integers) != scaled:
            raise _misfit(bundle, f"{name} has other scales than its rows need")
    for name, scale in scales.items():
        weights[name].mul_(scale[:, None])


def _misfit(bundle: Bundle, why: str) -> UserError:
    return UserError(f"{bundle.folder}: the weights do not fit config.yaml ({why})")


def _is_finite(tensor: Tensor) -> bool:
    """Whether all numbers are finite. The sum says so in a tenth of the time, unless it overflows."""
    return bool(tensor.sum(dtype=torch.float32).isfinite()) or bool(tensor.isfinite().all())


def _card(config: BundleConfig, parameters: Mapping[str, int], facts: Mapping[str, Any]) -> str:
    lines = [
        f"# {config.kind}, {' → '.join(config.languages)}",
        "",
        "Written by latentmt.",
        "",
        "| part | parameters |",
    ]
    lines += ["|---|---|", *(f"| {part} | {count:,} |" for part, count in parameters.items())]
    lines += [f"| all | {sum(parameters.values()):,} |", "", "| fact | value |", "|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {value} |" for name, value in facts.items())]) + "\n"
