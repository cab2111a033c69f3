"""Which weights train: frozen parts and low-rank adapters."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch

from vtgrl.core.errors import ConfigError
from vtgrl.core.log import logger
from vtgrl.core.schema import LoraConfig
from vtgrl.model.families.base import Family

GROUPS = ("vision", "merger", "embed", "lm_head", "text")


def freeze_parts(hf: Any, family: Family, parts: Sequence[str]) -> None:
    """Turn `requires_grad` off for groups (a text model simply has no `vision`) and for glob patterns of names.

    Raises:
        ConfigError: a pattern that no parameter name matches; nothing left that trains.
    """
    groups = family.freeze_groups(hf)
    params = dict(hf.named_parameters())
    frozen: set[str] = set()
    for part in parts:
        frozen.update(groups.get(part, ()) if part in GROUPS else _matching(part, params))
    _warn_tied(groups, parts)
    for name in frozen:
        params[name].requires_grad_(False)
    if not any(p.requires_grad for p in params.values()):
        raise ConfigError(f"model.freeze={list(parts)}: no weight is left to train")


def _matching(pattern: str, params: dict[str, Any]) -> list[str]:
    found = [name for name in params if fnmatchcase(name, pattern)]
    if not found:
        raise ConfigError(
            f"model.freeze: {pattern!r} matches no parameter; parts are {', '.join(GROUPS)}, or a glob pattern of names "
            f"such as {next(reversed(params))!r}"
        )
    return found


def _warn_tied(groups: dict[str, list[str]], parts: Sequence[str]) -> None:
    if groups["embed"] == groups["lm_head"] and ("embed" in parts) != ("lm_head" in parts):
        logger.warning("model.freeze: embedding and head are one matrix in this model: both are frozen")


def add_lora(hf: Any, lora: LoraConfig, *, seed: int) -> None:
    """Put adapters (arXiv:2106.09685) on the text model's layers named in `lora.targets`, in place; freeze all else.

    The update starts at zero. The model's class and its other parameter names stay as they are.

    Raises:
        ConfigError: the text model has no linear layer of a name in `targets`.
    """
    import peft

    prefix = next(name for name, module in hf.named_modules() if module is hf.get_decoder())
    layers = [n for n, m in hf.named_modules() if isinstance(m, torch.nn.Linear) and n.startswith(f"{prefix}.")]
    for target in lora.targets:
        if not any(name.endswith(f".{target}") for name in layers):
            known = sorted({name.rpartition(".")[2] for name in layers})
            raise ConfigError(f"model.lora.targets: the text model has no layer {target!r}; it has {', '.join(known)}")
    chosen = [name for name in layers if name.rpartition(".")[2] in lora.targets]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        peft.inject_adapter_in_model(peft.LoraConfig(r=lora.r, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=chosen), hf)
    for name, param in hf.named_parameters():
        param.requires_grad_(".lora_" in name)
