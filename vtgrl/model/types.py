"""Records between processor, policy and rollout. Shape legend: P prompt tokens, R answer tokens, T packed tokens,
N answers, V vision tokens after the merge (of a head: vocabulary), D hidden size, k ids of a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vtgrl.core.errors import ConfigError
from vtgrl.core.types import Sample

if TYPE_CHECKING:
    from vtgrl.model.slices import Variant


@dataclass(frozen=True, eq=False)
class Medium:
    """One clip as the vision tower and the engines take it.

    pixel_values: [t*h*w patches, channels x temporal x patch^2] float32 from the Hugging Face processor.
    grid_thw: patches before the merge. `seconds_per_grid`: seconds between temporal slices, a float (never cut to int).
    `metadata` goes to the HF processor and to vLLM: fps, duration, total_num_frames, frames_indices, video_backend.
    """

    id: str
    frames_THWC: np.ndarray
    metadata: dict[str, Any]
    pixel_values: torch.Tensor
    grid_thw: tuple[int, int, int]
    seconds_per_grid: float


@dataclass(frozen=True, eq=False)
class Prompt:
    """A sample as ids, ready for trainer and engine.

    `text` holds ONE placeholder per medium (what vLLM gets, together with the frames). `input_ids` are the expanded ids
    that the trainer feeds and that the engine must report back, exactly. `vision_index` are the positions in `input_ids`
    of the V vision tokens, in tower order: media are placed by position, never by searching ids.
    `positions_3P`: int64 [3, P] M-RoPE positions, owned by the family (for a text model three equal rows); an answer
    continues at `next_position`, next_position + 1, ... on all three axes. A probe puts a `Variant` in a medium's place.
    `copy`: how often the sample stood in the step's batch (of all ranks) before; copies draw their own answers.
    """

    sample: Sample
    text: str
    input_ids: tuple[int, ...]
    media: tuple[Medium | Variant, ...]
    vision_index: torch.Tensor
    positions_3P: torch.Tensor
    next_position: int
    duration: float
    copy: int = 0


@dataclass(frozen=True, eq=False)
class PackedGroup:
    """One prompt and the answers that share it. SFT: one answer. An answer has at least one token."""

    prompt: Prompt
    answers: tuple[tuple[int, ...], ...]

    @property
    def tokens(self) -> int:
        """Packed length: the prompt once and every answer."""
        return len(self.prompt.input_ids) + sum(map(len, self.answers))


PackedRow = tuple[PackedGroup, ...]
"""Groups that share one forward pass and do not see each other."""


@dataclass(frozen=True, eq=False)
class Distribution:
    """A policy's next-token distributions at R read rows, not multiplied out: softmax((hidden W^T + b) / temperature). No gradient."""

    hidden_RD: torch.Tensor
    weight_VD: torch.Tensor
    bias_V: torch.Tensor | None
    temperature: float


@dataclass(frozen=True, eq=False)
class Statistics:
    """What else the head says of every read row, beside the log-prob of the answer's token.

    top_k: its k likeliest ids and their log-probs. ids_Rk: int64, ids whose log-probs are wanted (a teacher's candidates, ...);
    mask_Rk: bool, False where they are padding (value 0, no gradient). against: another policy's distribution at the same answers'
    tokens, maybe after another prompt; `beta` says which divergence (see `vtgrl.model.divergence`; 0 forward KL, 1 reverse KL). Where
    vocabularies differ in size, both are cut to the ids that both have and normalised over these.
    distribution: hand out the policy's own distribution, for another policy's `against`.
    """

    top_k: int = 0
    ids_Rk: torch.Tensor | None = None
    mask_Rk: torch.Tensor | None = None
    against: Distribution | None = None
    beta: float = 1.0
    distribution: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.beta <= 1.0:
            raise ConfigError(f"beta {self.beta} of a divergence must lie between 0 (forward KL) and 1 (reverse KL)")
        if self.top_k < 0:
            raise ConfigError(f"top_k {self.top_k} must be 0 (none) or more")


@dataclass(frozen=True, eq=False)
class PolicyOutput:
    """Values per answer token, all answers of the row one after the other (R = total): fp32, with gradients.

    logp_R[t] = log p(answer token t | prompt, earlier answer tokens), after dividing the logits by the temperature.
    The others are there when `entropy` or `Statistics` asked for them; all log-probs are normalised over the whole vocabulary.
    `distribution` holds the head's weight, under ZeRO-3 a gathered one: drop it when the row is done.
    """

    logp_R: torch.Tensor
    entropy_R: torch.Tensor | None = None
    ids_logp_Rk: torch.Tensor | None = None
    top_ids_Rk: torch.Tensor | None = None
    top_logp_Rk: torch.Tensor | None = None
    divergence_R: torch.Tensor | None = None
    distribution: Distribution | None = None
