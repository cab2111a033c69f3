"""How a benchmark is run and scored: prompt, frames, decoding, clip policy and parser under one name, because a number
without them is not comparable. Token counts are merged vision tokens, so that one protocol fits every patch size."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vtgrl.core.schema import SamplingConfig, VideoConfig
from vtgrl.eval.types import Policy, ThresholdOp


@dataclass(frozen=True)
class Protocol:
    """One published way to evaluate. `video_tokens`: budget for a clip; `frame_tokens`: (fewest, most) for a frame.
    `policy` None: the parser's own. `source`: whose settings these are."""

    name: str
    prompt: str
    parser: str
    threshold_op: ThresholdOp
    clip_gt: bool
    source: str
    policy: Policy | None = None
    fps: float = 2.0
    max_frames: int = 768
    video_tokens: int = 3584
    frame_tokens: tuple[int, int] = (4, 768)
    max_tokens: int = 1024

    def video(self, unit: int, *, base: VideoConfig) -> VideoConfig:
        """Frame settings for a model whose merged patch is `unit` x `unit` pixels (0 for a text model: no frames)."""
        area = unit * unit
        low, high = self.frame_tokens
        return replace(
            base,
            fps=self.fps,
            max_frames=self.max_frames,
            min_pixels=low * area,
            max_pixels=high * area,
            total_pixels=self.video_tokens * area,
        )

    def sampling(self) -> SamplingConfig:
        """Greedy decoding."""
        return SamplingConfig(temperature=0.0, max_tokens=self.max_tokens)

    def describe(self) -> dict[str, object]:
        """What the result file stores."""
        return {
            "prompt": self.prompt,
            "fps": self.fps,
            "max_frames": self.max_frames,
            "video_tokens": self.video_tokens,
            "frame_tokens": list(self.frame_tokens),
            "max_tokens": self.max_tokens,
            "source": self.source,
        }


STRICT = Protocol("strict", "time_r1", "vtgrl", "ge", False, "vtgrl: published windows, inclusive thresholds, nothing guessed")
TARO = Protocol(
    "taro", "taro", "taro", "ge", True, "oceanflowlab/TaRO standalone_eval (repetition penalty 1.05 there, none here)",
    max_frames=1024, video_tokens=4096,
)  # fmt: skip
TIME_R1 = Protocol("time_r1", "time_r1", "time_r1", "gt", False, "xiaomi-research/time-r1 test.sh, with thinking", frame_tokens=(16, 768))
QWEN = Protocol("qwen", "qwen", "vtgrl", "ge", False, "Qwen-VL reports name no prompt: a plain question", video_tokens=24576)
TIMELENS = Protocol("timelens", "timelens", "timelens", "ge", False, "TencentARC/TimeLens", policy="first", video_tokens=14336)

PROTOCOLS = {p.name: p for p in (STRICT, TARO, TIME_R1, QWEN, TIMELENS)}


def protocols(**changes: object) -> dict[str, Protocol]:
    """The five named protocols, each with a benchmark's own `changes`."""
    return {name: replace(p, **changes) for name, p in PROTOCOLS.items()}  # type: ignore[arg-type]
