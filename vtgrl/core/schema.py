"""What a recipe may say: one frozen dataclass a section, every key documented where it is defined.

`vtgrl.core.recipe` fills these from YAML and `key=value`; the recipe reference in docs/ is made from them. A field made
with `opt(..., kind=K)` holds a `Component` of that kind (written `name` or `{name: ..., key: ...}` in YAML).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from vtgrl.core.registry import Component, opt

Dtype = Literal["fp32", "bf16"]


def section(cls: Any) -> Any:
    """A nested section whose keys all have defaults; `cls` is the class, or a function that makes one."""
    return field(default_factory=cls)


@dataclass(frozen=True)
class LoraConfig:
    """Low-rank adapters (peft)."""

    r: int = opt(0, "rank; 0 trains the full weights", ge=0)
    alpha: int = opt(16, "scale: the update is alpha / r * B A", gt=0)
    dropout: float = opt(0.0, "dropout on the adapter's input; 0 keeps rollout and trainer equal", ge=0, lt=1)
    targets: tuple[str, ...] = opt(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"), "names of the linear layers in the text model"
    )


@dataclass(frozen=True)
class ModelConfig:
    """The policy."""

    path: str = opt("", "Hugging Face folder (or hub name) of the start model")
    dtype: Dtype = opt("bf16", "compute and storage type of the weights; fp32 on a CPU")
    freeze: tuple[str, ...] = opt(
        ("vision",), "parts that do not train: any of vision (tower), merger, embed, lm_head, text, or a parameter-name pattern"
    )
    gradient_checkpointing: bool = opt(False, "recompute activations in the backward pass: less memory, about 1.3x the time")
    lora: LoraConfig = section(LoraConfig)


@dataclass(frozen=True)
class VideoConfig:
    """Which frames the model sees, and how large (the rules of qwen-vl-utils). Pixel numbers are before the merge."""

    backend: Literal["pyav", "decord"] = opt("pyav", "decoder; both give the same frames, pyav for less CPU time")
    fps: float = opt(2.0, "frames a second that are sampled", gt=0)
    min_frames: int = opt(4, "at least this many frames (an even number)", ge=2)
    max_frames: int = opt(768, "at most this many frames (an even number); longer clips are sampled more sparsely", ge=2)
    min_pixels: int = opt(0, "a frame has at least this many pixels; 0: 4 merged patches of the model (16 for Time-R1)", ge=0)
    max_pixels: int = opt(0, "a frame has at most this many pixels; 0: 768 merged patches of the model", ge=0)
    total_pixels: int = opt(0, "budget for all frames of a clip together; 0: 3584 merged patches of the model", ge=0)
    timeout_s: float = opt(60.0, "a decode that takes longer is killed and reported with the file's name", gt=0)
    workers: int = opt(0, "processes that decode ahead; 0: one killable worker", ge=0)
    ahead_gb: float = opt(2.0, "memory (GiB) for clips that are decoded and processed ahead, a rank; one always is", gt=0)
    cache_dir: str = opt("", "folder that keeps decoded frames for later epochs and runs, shared by ranks; on a local disk; empty: none")
    cache_gb: float = opt(50.0, "size (GiB) of that folder; clips unused for longest leave", gt=0)


@dataclass(frozen=True)
class SelectConfig:
    """Rows drawn by difficulty before the run (Time-R1). p of a row: its `meta.difficulty` / 100, the IoU of a model's answer."""

    k: int = opt(0, "rows that are drawn, without replacement; 0: all rows, whatever they state", ge=0)
    mu: float = opt(0.3, "rows of this p are drawn most: weight exp(-(p - mu)^2 / (2 sigma^2))")
    sigma: float = opt(0.2, "width of the bell", gt=0)
    above: float = opt(0.0, "only rows with a larger p can be drawn; -1: also those with p = 0", ge=-1, lt=1)
    seed: int = opt(0, "of the draw")
    strict: bool = opt(False, "stop when fewer than k rows can be drawn; off: take all of them and say so")


@dataclass(frozen=True)
class FilterConfig:
    """Rows of an epoch by what the policy can do by then: it answers them greedily, p is the answer's IoU (Time-R1)."""

    every: int = opt(0, "epochs between two filterings, each before the next epoch; 0: every epoch trains on all rows", ge=0)
    above: float = opt(0.0, "rows with p up to this are hopeless: left out (-1: kept)", ge=-1, le=1)
    up_to: float = opt(0.7, "rows with a larger p are solved: left out", ge=0, le=1)
    k: int = opt(0, "of more rows than this, so many are kept, evenly spaced from easy to hard; 0: no limit", ge=0)
    order: Literal["shuffled", "easy_to_hard"] = opt(
        "shuffled", "within an epoch; easy_to_hard needs meta.difficulty for the first epoch, before anything is filtered"
    )
    shrink: bool = opt(False, "only rows of the epoch before are looked at again, as published; off: a row that was left out can return")
    empty: Literal["stop", "keep"] = opt(
        "stop", "when no row is left: stop: end the run there, with its model; keep: train on the rows of the epoch before"
    )


@dataclass(frozen=True)
class DataConfig:
    """Training and validation rows."""

    source: Component = opt("jsonl", "reader of `path`", kind="source")
    path: str = opt("", "annotation file of the training rows")
    videos: str = opt("", "folder that relative video paths start from; empty: the folder of `path`")
    val_path: str = opt("", "annotation file for in-loop validation, same source; empty: no validation")
    val_videos: str = opt("", "folder of the validation videos; empty: as `videos`")
    hold_out: float = opt(
        0.0, "without val_path: share of the training clips set apart for validation, chosen by the names of their files", ge=0, lt=1
    )
    limit: int = opt(0, "use only the first rows; 0: all", ge=0)
    select: SelectConfig = section(SelectConfig)
    filter: FilterConfig = section(FilterConfig)
    prompt: Component = opt("time_r1", "prompt template", kind="prompt")
    max_prompt_tokens: int = opt(8192, "a longer prompt is reported and left out, never cut", ge=1)


@dataclass(frozen=True)
class SamplingConfig:
    """How answers are drawn."""

    temperature: float = opt(1.0, "0 is greedy; the trainer scores at the same temperature", ge=0)
    top_p: float = opt(1.0, "nucleus; 1: off", gt=0, le=1)
    top_k: int = opt(-1, "-1: off", ge=-1)
    max_tokens: int = opt(1024, "longest answer", ge=1)


def greedy() -> SamplingConfig:
    """Validation is greedy unless the recipe says otherwise."""
    return SamplingConfig(temperature=0.0)


@dataclass(frozen=True)
class RolloutConfig:
    """Who samples, how many answers a prompt, and how."""

    engine: Component = opt("vllm_colocate", "sampling engine", kind="engine")
    n: int = opt(8, "answers a prompt (G)", ge=1)
    sampling: SamplingConfig = section(SamplingConfig)


@dataclass(frozen=True)
class KlConfig:
    """Distance to the frozen start model. See vtgrl/algo/kl.py."""

    coef: float = opt(0.0, "0: no reference pass at all", ge=0)
    kind: Literal["k1", "k2", "k3"] = opt("k3", "estimator of KL(policy || reference)")
    where: Literal["loss", "reward"] = opt("loss", "add to the loss, or subtract from every token's reward")


@dataclass(frozen=True)
class PrefixedConfig:
    """Answers whose first tokens a curriculum gave: they are not the policy's own samples. See vtgrl/algo/prefixed.py."""

    rule: Literal["mask", "clone", "awr", "raft", "none"] = opt(
        "mask",
        "A: the row's advantage. mask: train on A > 0, drop the others (TaRO); clone: the same with weight 1; awr: with weight "
        "exp(A / beta); raft: the group's best alone, if it has A > 0; none: A as it is",
    )
    beta: float = opt(1.0, "temperature of awr", gt=0)
    prefix_weight: float = opt(
        1.0, "weight of a given token in the objective and its normaliser; 1: as published, 0: given tokens do not train", ge=0
    )


@dataclass(frozen=True)
class AlgoConfig:
    """The objective."""

    advantage: Component = opt("grpo", "reward -> advantage", kind="advantage")
    loss: Component = opt("ppo_clip", "policy loss", kind="loss")
    kl: KlConfig = section(KlConfig)
    aggregate: Literal["token_mean", "seq_mean", "constant"] = opt(
        "token_mean",
        "token_mean: sum over tokens / all trained tokens of the optimizer step; seq_mean: mean of row means; "
        "constant: sum / (rows x max_tokens), as in Dr. GRPO",
    )
    entropy_coef: float = opt(0.0, "bonus for entropy")
    prefixed: PrefixedConfig = section(PrefixedConfig)
    mask_truncated: bool = opt(False, "answers cut by max_tokens give no gradient (they still count in their group)")
    updates: int = opt(1, "optimizer steps a batch of rollouts (the batch is split by prompts)", ge=1)
    epochs: int = opt(1, "passes over a batch of rollouts", ge=1)


@dataclass(frozen=True)
class OptimConfig:
    """AdamW and its schedule."""

    lr: float = opt(1e-6, "peak learning rate", ge=0)
    weight_decay: float = opt(0.01, "decoupled", ge=0)
    beta1: float = opt(0.9, "first moment", ge=0, lt=1)
    beta2: float = opt(0.999, "second moment", ge=0, lt=1)
    eps: float = opt(1e-8, "denominator", gt=0)
    grad_clip: float = opt(1.0, "largest global gradient norm; 0: off", ge=0)
    schedule: Literal["constant", "linear", "cosine"] = opt("constant", "after the warm-up")
    warmup_steps: int = opt(0, "linear warm-up", ge=0)


@dataclass(frozen=True)
class ZeroConfig:
    """DeepSpeed."""

    stage: Literal[0, 1, 2, 3] = opt(3, "ZeRO stage")
    offload_optimizer: bool = opt(False, "moments in CPU memory")
    offload_params: bool = opt(False, "weights in CPU memory (stage 3)")
    persistence_threshold: int = opt(100_000, "parameters smaller than this are never sharded (stage 3)", ge=0)


@dataclass(frozen=True)
class TrainConfig:
    """Length, batch, seeds, checkpoints."""

    steps: int = opt(0, "optimizer-batch steps; 0: as many as `epochs` give", ge=0)
    epochs: int = opt(1, "passes over the data, when `steps` is 0", ge=1)
    batch: int = opt(16, "prompts (GRPO) or rows (SFT) a step, over all ranks", ge=1)
    tokens_per_micro_batch: int = opt(16384, "packed tokens a forward pass holds at most (one group always fits)", ge=1)
    balance: float = opt(
        0.05,
        "with more than one rank: groups move to ranks with less work (their clips are read there again) if that lowers the work of the "
        "rank with most of it by this share of the mean; 0: they stay where they were drawn",
        ge=0,
    )
    seed: int = opt(0, "weights of new parts, sampling")
    data_seed: int = opt(0, "order of the data, and nothing else")
    save_every: int = opt(50, "steps between checkpoints; 0: only at the end", ge=0)
    keep_last: int = opt(2, "checkpoints kept, beside the best one", ge=0)
    val_every: int = opt(0, "steps between validations; 0: none", ge=0)
    val_limit: int = opt(0, "validation rows; 0: all", ge=0)
    best_metric: str = opt("val/miou", "the checkpoint with the highest value is kept; needs validation")
    max_skipped: int = opt(10, "steps in a row with a NaN loss before the run stops", ge=1)


@dataclass(frozen=True)
class LogConfig:
    """Where numbers go. metrics.jsonl is always written."""

    monitors: tuple[Component, ...] = opt(("console",), "console, wandb, tensorboard", kind="monitor")
    project: str = opt("vtgrl", "wandb project")
    name: str = opt("", "run name; empty: the folder's name")
    samples: int = opt(4, "groups a step written to samples.jsonl", ge=0)


@dataclass(frozen=True)
class SftRecipe:
    """vtgrl train sft"""

    model: ModelConfig = section(ModelConfig)
    video: VideoConfig = section(VideoConfig)
    data: DataConfig = section(DataConfig)
    optim: OptimConfig = section(OptimConfig)
    zero: ZeroConfig = section(ZeroConfig)
    train: TrainConfig = section(TrainConfig)
    log: LogConfig = section(LogConfig)
    validation: SamplingConfig = section(greedy)


@dataclass(frozen=True)
class GrpoRecipe:
    """vtgrl train grpo"""

    model: ModelConfig = section(ModelConfig)
    video: VideoConfig = section(VideoConfig)
    data: DataConfig = section(DataConfig)
    rollout: RolloutConfig = section(RolloutConfig)
    curriculum: Component = opt("none", "what answers begin with; validation is always free", kind="curriculum")
    reward: tuple[Component, ...] = opt(("format", "iou"), "summed, each times its `weight`", kind="reward")
    probes: tuple[Component, ...] = opt(
        (),
        "settings of the extra passes that rewards need (`boundary_shuffle` for `temporal_sensitivity`); unnamed: their defaults",
        kind="probe",
    )
    algo: AlgoConfig = section(AlgoConfig)
    optim: OptimConfig = section(OptimConfig)
    zero: ZeroConfig = section(ZeroConfig)
    train: TrainConfig = section(TrainConfig)
    log: LogConfig = section(LogConfig)
    validation: SamplingConfig = section(greedy)
