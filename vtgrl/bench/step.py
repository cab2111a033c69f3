"""The update of one GRPO step: ours against TRL's `GRPOTrainer`, on the same model, prompts, answers and rewards, in one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from vtgrl.bench.measure.kit import Kit, TinyConfig, relative, tiny_kit, with_zeros
from vtgrl.bench.measure.memory import peak_memory
from vtgrl.bench.measure.work import flops
from vtgrl.bench.step_parts.clock import Clock
from vtgrl.bench.step_parts.generation import generation
from vtgrl.bench.step_parts.our_side import LR, OurSide
from vtgrl.bench.step_parts.same_rollouts import FAMILY, SameRollouts, StepSize, same_rollouts
from vtgrl.bench.step_parts.trl_side import TrlSettings, TrlSide, import_trl
from vtgrl.bench.types import BenchResult
from vtgrl.core.errors import ConfigError
from vtgrl.core.registry import opt, register
from vtgrl.core.schema import Dtype


@dataclass(frozen=True)
class StepConfig(TinyConfig):
    """One GRPO step: groups of answers to prompts of text, and to prompts of text and images."""

    prompts: int = opt(2, "prompts of the step", ge=1)
    prompt: int = opt(512, "tokens of a prompt, those of its images included", ge=1)
    answers: int = opt(8, "answers a prompt (G)", ge=2)
    answer: int = opt(64, "tokens of an answer", ge=1)
    images: int = opt(6, "images of a prompt in the case with images; 0: only the text case", ge=0)
    side: int = opt(8, "tokens of an image along each side", ge=1)
    epochs: int = opt(1, "passes over the answers; with more than one, both score the old log-probs first", ge=1)
    micro_batch: int = opt(8, "answers in one forward pass of TRL (its default: 8)", ge=1)
    dtype: Dtype = opt("fp32", "bf16: mixed precision with fp32 master weights on both sides")
    repeats: int = opt(5, "runs whose least time counts, after one that does not", ge=1)

    def __post_init__(self) -> None:
        if self.prompts * self.answers % self.micro_batch:
            raise ConfigError(f"micro_batch={self.micro_batch} does not divide {self.prompts * self.answers} answers: choose one that does")


@register("bench", "step", config=StepConfig)
def step(*, config: StepConfig) -> BenchResult:
    """Scoring, forward, backward and optimizer of one GRPO step against TRL's GRPOTrainer: least time of interleaved runs."""
    version = import_trl().__version__
    cases = {"text": _case(config, images=0)}
    if config.images:
        cases["images"] = _case(config, images=config.images)
    return BenchResult(
        bench="step",
        ratio=min(case["ratio"]["time"] for case in cases.values()),
        exactness=max(case["difference"]["gradient_relative"] for case in cases.values()),
        unit=f"{_unit()} of the update; exactness: relative difference of the gradient",
        baseline=f"TRL {version} GRPOTrainer.train(), {config.micro_batch} answers a forward pass, answers given instead of generated",
        details={"engine": "DeepSpeed, ZeRO stage 0, one rank", "trl": version, **cases},
    )


def _unit() -> str:
    return "time on the GPU" if torch.cuda.is_available() else "CPU time"


def _case(config: StepConfig, *, images: int) -> dict[str, Any]:
    """Everything about one kind of prompt."""
    with tiny_kit(FAMILY, config) as kit:
        rollouts = same_rollouts(kit, _size(config, images))
        first = _first_step(kit, rollouts, config)
        seconds = _interleaved(kit, rollouts, config)
        drawing = generation(kit, rollouts)
    peaks = _memory(config, images)
    return {
        "tokens": {
            "ours": config.prompts * (config.prompt + config.answers * config.answer),
            "trl": config.prompts * config.answers * (config.prompt + config.answer),
        },
        "difference": first["difference"],
        "ratio": {
            "flops": first["flops"]["trl"] / first["flops"]["ours"],
            "memory": peaks["trl"]["resident"] / peaks["ours"]["resident"],
            "time": seconds["trl"]["update"] / seconds["ours"]["update"],
        },
        "flops": first["flops"],
        "memory": peaks,
        "seconds": seconds,
        "generation_seconds": drawing,
    }


def _size(config: StepConfig, images: int) -> StepSize:
    return StepSize(config.prompts, config.prompt, config.answers, config.answer, images, config.side)


def _sides(kit: Kit, rollouts: SameRollouts, config: StepConfig, *, rounds: int) -> tuple[OurSide, TrlSide]:
    settings = TrlSettings(config.dtype, config.epochs, config.micro_batch, rounds)
    peer = TrlSide(kit, rollouts, settings)
    return OurSide(str(kit.folder), rollouts, dtype=config.dtype, epochs=config.epochs), peer


def _first_step(kit: Kit, rollouts: SameRollouts, config: StepConfig) -> dict[str, Any]:
    """The step from the start weights: counted work, and how far the two results lie apart."""
    ours, peer = _sides(kit, rollouts, config, rounds=1)
    counted = {"ours": flops(ours.recorded_step), "trl": flops(peer.train)}
    our_weights, peer_weights = ours.weights(), peer.weights()
    apart = max((our_weights[n] - peer_weights[n]).abs().max().item() for n in peer_weights)
    return {
        "flops": counted,
        "difference": {
            "loss": abs(ours.loss - peer.loss),
            "gradient_relative": relative(ours.gradients, with_zeros(peer.gradients, ours.gradients)),
            "weights": apart,
            "weights_in_steps": apart / (LR * config.epochs),
        },
    }


def _interleaved(kit: Kit, rollouts: SameRollouts, config: StepConfig) -> dict[str, dict[str, float]]:
    """Least seconds of each side's step: one of TRL's, one of ours, and again; the first of each does not count."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    ours, peer = _sides(kit, rollouts, config, rounds=config.repeats + 1)
    clock, found = Clock(), []

    def our_turn() -> None:
        clock.start()
        ours.step()
        found.append(clock.stop()["whole"])

    peer.between = our_turn
    try:
        peer.train()
    finally:
        torch.set_num_threads(threads)
    parts = {part: min(round_[part] for round_ in peer.rounds[1:]) for part in ("update", "prepare")}
    return {"ours": {"update": min(found[1:])}, "trl": parts}


def _memory(config: StepConfig, images: int) -> dict[str, dict[str, int]]:
    """Peak growth of a first step, each side in a process of its own. The ratio is of resident memory: TRL's head reserves 512 MiB
    of workspace that a tiny vocabulary does not fill, so `tracked` would flatter us."""
    settings = asdict(config)
    return {side: asdict(peak_memory(f"{__name__}:{side}_alone", settings=settings, images=images)) for side in ("ours", "trl")}


def ours_alone(settings: dict[str, Any], images: int) -> Callable[[], object]:
    """Our step, nothing else in the process."""
    config = StepConfig(**settings)
    with tiny_kit(FAMILY, config) as kit:
        rollouts = same_rollouts(kit, _size(config, images))
        return OurSide(str(kit.folder), rollouts, dtype=config.dtype, epochs=config.epochs).step


def trl_alone(settings: dict[str, Any], images: int) -> Callable[[], object]:
    """TRL's step, nothing else in the process."""
    config = StepConfig(**settings)
    with tiny_kit(FAMILY, config) as kit:
        rollouts = same_rollouts(kit, _size(config, images))
        return TrlSide(kit, rollouts, TrlSettings(config.dtype, config.epochs, config.micro_batch, 1)).train
