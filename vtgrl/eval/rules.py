"""Which protocol, parser and ground truth a scoring uses: the command line over the protocol over the parser's own rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from vtgrl.core.errors import ConfigError
from vtgrl.core.registry import Component, get, names
from vtgrl.eval.protocol import Protocol
from vtgrl.eval.score import Scorer, make_scorer
from vtgrl.eval.types import Policy, ThresholdOp

ALL = "all"
DEFAULT_PROTOCOL = "strict"


@dataclass(frozen=True)
class Rules:
    """protocol: its settings. overrides: what the command line changed of it (the result file states both)."""

    protocol: Protocol
    overrides: Mapping[str, object]
    clip_gt: bool
    scorers: tuple[Scorer, ...]


def choose_protocol(protocols: Mapping[str, Protocol], name: str) -> Protocol:
    """The named protocol of a benchmark, `strict` by default.

    Raises:
        ConfigError: the benchmark has no such protocol.
    """
    wanted = name or DEFAULT_PROTOCOL
    if wanted not in protocols:
        raise ConfigError(f"unknown protocol {wanted!r}; there are: {', '.join(protocols)}")
    return protocols[wanted]


def make_rules(
    protocol: Protocol,
    *,
    parser: str = "",
    threshold_op: ThresholdOp | None = None,
    policy: Policy | None = None,
    clip_gt: bool | None = None,
    unit: str = "",
    fps: float = 0.0,
) -> Rules:
    """Scorers for one parser, or for all of them when `parser` is "all".

    A parser that is not the protocol's keeps its own threshold operator and policy.
    """
    clip = protocol.clip_gt if clip_gt is None else clip_gt
    chosen = names("parser") if parser == ALL else [parser or protocol.parser]
    scorers = tuple(_scorer(name, protocol, threshold_op=threshold_op, policy=policy, clip_gt=clip, unit=unit, fps=fps) for name in chosen)
    given = {"parser": parser, "threshold_op": threshold_op, "policy": policy, "clip_gt": clip_gt, "unit": unit}
    return Rules(protocol, {key: value for key, value in given.items() if value not in (None, "")}, clip, scorers)


def _scorer(
    name: str, protocol: Protocol, *, threshold_op: ThresholdOp | None, policy: Policy | None, clip_gt: bool, unit: str, fps: float
) -> Scorer:
    own = name == protocol.parser
    op = threshold_op or (protocol.threshold_op if own else None)
    chosen = policy or (protocol.policy if own else None)
    return make_scorer(_component(name, unit, fps), threshold_op=op, policy=chosen, clip_gt=clip_gt)


def _component(name: str, unit: str, fps: float) -> str | Component:
    """The parser with its unit declared.

    Raises:
        ConfigError: the parser reads seconds only.
    """
    if not unit:
        return name
    entry = get("parser", name)
    config: Any = entry.config()
    if not any(field.name == "unit" for field in fields(config)):
        raise ConfigError(f"parser {name!r} reads seconds only; --unit needs --parser vtgrl")
    return Component("parser", name, replace(config, unit=unit, fps=fps))
