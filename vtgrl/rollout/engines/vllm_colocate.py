"""`vllm_colocate`: vLLM in the trainer's process, one whole model a rank, weights replaced in place after each step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch

from vtgrl.core.errors import ConfigError, RunError
from vtgrl.core.registry import opt, register
from vtgrl.core.schema import SamplingConfig
from vtgrl.core.types import Completion
from vtgrl.model.types import Prompt
from vtgrl.rollout.engines.vllm_llm import InProcessVllm
from vtgrl.rollout.held import HeldWeights
from vtgrl.rollout.limits import answer_limit, member_prefixes
from vtgrl.rollout.protocol import EngineContext, Prefixes
from vtgrl.rollout.seeds import prompt_seeds
from vtgrl.rollout.sync import iter_weights, untrained_names

GIB, MIB = 1 << 30, 1 << 20


@dataclass(frozen=True)
class VllmColocateConfig:
    """Settings of the in-process vLLM."""

    gpu_memory_utilization: float = opt(0.4, "share of the GPU that vLLM takes for weights and KV cache; the trainer needs the rest")
    kv_cache_gb: float = opt(1.0, "KV cache in GiB on a CPU (on a GPU it follows from gpu_memory_utilization)")
    max_num_seqs: int = opt(256, "answers that are decoded together")
    enforce_eager: bool = opt(False, "no torch.compile and no CUDA graphs; always so on a CPU, where compiling takes two minutes")
    sleep_level: Literal[0, 1, 2] = opt(
        0,
        "GPU only: free memory between rollouts; 1 keeps the weights in CPU memory, 2 drops them until the next publish "
        "(so one rollout a step, no validation in the loop)",
    )
    bucket_mb: int = opt(512, "weights gathered at a time when they are published, in MiB")


class Backend(Protocol):
    """What the engine needs of a vLLM; `InProcessVllm` is the real one."""

    def generate(self, requests: Sequence[dict[str, Any]], params: Sequence[dict[str, Any]]) -> list[Any]:
        """One RequestOutput a request, in order."""

    def reload(self, weights: Iterable[tuple[str, torch.Tensor]], *, kept: frozenset[str]) -> None:
        """Replace all weights but those named in `kept`, reset all caches."""

    def sleep(self, level: int) -> None:
        """Free memory."""

    def wake_up(self) -> None:
        """Take memory back."""

    def stop(self) -> None:
        """Free everything."""


@register("engine", "vllm_colocate", config=VllmColocateConfig)
def make(context: EngineContext, *, config: VllmColocateConfig) -> VllmColocate:
    """vLLM in this process: the fast engine, on a GPU and on a CPU."""
    cuda = torch.cuda.is_available()
    if config.sleep_level and not cuda:
        raise ConfigError("rollout.engine.sleep_level: vLLM can only sleep on a GPU; set 0")
    backend = InProcessVllm(
        model_path=context.model_path,
        dtype=context.dtype,  # type: ignore[arg-type]
        max_model_len=context.max_model_len,
        video=context.builder.family.unit(context.builder.config) > 0,
        seed=context.seed + context.rank,
        world_size=context.world_size,
        max_num_seqs=config.max_num_seqs,
        **(_gpu_options(config) if cuda else _cpu_options(config, context.max_model_len)),
    )
    return VllmColocate(context, config=config, backend=backend)


def _gpu_options(config: VllmColocateConfig) -> dict[str, Any]:
    return {
        "gpu_memory_utilization": config.gpu_memory_utilization,
        "enforce_eager": config.enforce_eager,
        "enable_sleep_mode": config.sleep_level > 0,
    }


def _cpu_options(config: VllmColocateConfig, max_model_len: int) -> dict[str, Any]:
    """vLLM 0.32 on a CPU dies on a prompt that is read in two parts when requests have seeds ("CPU Generator does not use
    offset"), so every prompt is read whole."""
    return {
        "kv_cache_memory_bytes": int(config.kv_cache_gb * GIB),
        "enforce_eager": True,
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(max_model_len, config.max_num_seqs),
    }


class VllmColocate:
    """The engine. It starts with the weights in `context.model_path`, which are version 0."""

    def __init__(self, context: EngineContext, *, config: VllmColocateConfig, backend: Backend) -> None:
        self.context = context
        self.config = config
        self.backend = backend
        self.held = HeldWeights()

    @property
    def version(self) -> int:
        """Optimizer step whose weights the engine holds."""
        return self.held.version

    def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        n: int,
        sampling: SamplingConfig,
        seed: int,
        version: int,
        prefixes: Prefixes | None = None,
    ) -> list[list[Completion]]:
        """n completions a prompt, one request each, so the engine shares the prompt's KV cache and video.

        A group with prefixes takes one request an answer, with the seed that the answer would have anyway; the requests share
        prompt and video through vLLM's prefix and media caches.

        Raises:
            RunError: the engine's weights are not those of `version`; it read another prompt; it gave no log-prob.
            DataError: a prompt, or a prefix, leaves no room for an answer.
        """
        self.held.require(version)
        if not prompts:
            return []
        self._wake()
        seeds = prompt_seeds(prompts, run_seed=self.context.seed, seed=seed)
        asks = [self._asks(p, prefixes[i] if prefixes else None, n=n, sampling=sampling) for i, p in enumerate(prompts)]
        pairs = [(ask, s + ask.member) for group, s in zip(asks, seeds, strict=True) for ask in group]
        outputs = iter(
            self.backend.generate(
                [request_of(ask.prompt, ask.given, self.context.builder) for ask, _ in pairs],
                [self._params(ask, sampling=sampling, seed=s) for ask, s in pairs],
            )
        )
        answers = [[c for ask in group for c in self._completions(ask, next(outputs))] for group in asks]
        self._sleep()
        return [group if len(group) == n else group * n for group in answers]  # greedy answers are drawn once

    def publish(self, policy: Any, *, version: int) -> None:
        """Take the policy's weights (collective under ZeRO-3: every rank publishes); from the second time on, those that train."""
        self._wake()
        partial = self.held.partial(policy)
        weights = iter_weights(policy, bucket_bytes=self.config.bucket_mb * MIB, trained_only=partial)
        self.backend.reload(weights, kept=untrained_names(policy) if partial else frozenset())
        self.held.published(version, policy=policy)

    def close(self) -> None:
        """Free the engine's memory."""
        self.backend.stop()

    def _asks(self, prompt: Prompt, given: Sequence[tuple[int, ...]] | None, *, n: int, sampling: SamplingConfig) -> list[_Ask]:
        """The requests of one group: one for all of it when no answer has a prefix."""
        limit = answer_limit(prompt, sampling=sampling, max_model_len=self.context.max_model_len)
        ids = member_prefixes(prompt, given, n=n, limit=limit)
        if any(ids):
            return [_Ask(prompt, member, 1, limit, own) for member, own in enumerate(ids)]
        return [_Ask(prompt, 0, 1 if sampling.temperature == 0.0 else n, limit)]  # vLLM refuses n > 1 when all answers are the same

    def _params(self, ask: _Ask, *, sampling: SamplingConfig, seed: int) -> dict[str, Any]:
        return {
            "n": ask.n,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "max_tokens": ask.limit - len(ask.given),
            "seed": seed,
            "logprobs": 0,  # the sampled token's only
            "stop_token_ids": sorted(self.context.builder.eos_ids),
            "ignore_eos": True,  # exactly the ids above stop, not what the model folder's config may say beside them
            "detokenize": False,
        }

    def _completions(self, ask: _Ask, output: Any) -> list[Completion]:
        check_prompt(ask.prompt, output.prompt_token_ids, given=ask.given)
        return [self._completion(ask, answer) for answer in sorted(output.outputs, key=lambda a: a.index)]

    def _completion(self, ask: _Ask, answer: Any) -> Completion:
        sampled = tuple(answer.token_ids)
        logprobs = sampled_logprobs(sampled, answer.logprobs, row=ask.prompt.sample.id)
        return Completion(
            token_ids=ask.given + sampled,
            logprobs=(math.nan,) * len(ask.given) + logprobs,
            text=self.context.builder.decode(ask.given + sampled),
            finish="stop" if answer.finish_reason == "stop" else "length",
            policy_version=self.version,
            given=len(ask.given),
        )

    def _wake(self) -> None:
        if self.held.asleep:
            self.backend.wake_up()
            self.held.woke()

    def _sleep(self) -> None:
        if self.config.sleep_level:
            self.backend.sleep(self.config.sleep_level)
            self.held.slept(self.config.sleep_level)


@dataclass(frozen=True)
class _Ask:
    """One request: `n` answers to a prompt, the first of them member `member` of its group, of at most `limit` tokens with `given`."""

    prompt: Prompt
    member: int
    n: int
    limit: int
    given: tuple[int, ...] = ()


def request_of(prompt: Prompt, given: tuple[int, ...] = (), builder: Any = None) -> dict[str, Any]:
    """What goes to vLLM: text with ONE placeholder per medium and the frames, or plain ids when there is no medium.

    With a prefix it is the ids of that text, cut by the builder, and the prefix's ids behind them: vLLM expands the placeholders in
    ids too, and what was given is never text that could be cut into other tokens.
    """
    if not prompt.media:
        return {"prompt_token_ids": [*prompt.input_ids, *given]}
    videos = [(m.frames_THWC, {**m.metadata, "do_sample_frames": False}) for m in prompt.media]
    text = {"prompt_token_ids": [*builder.encode(prompt.text), *given]} if given else {"prompt": prompt.text}
    return {**text, "multi_modal_data": {"video": videos}}


def check_prompt(prompt: Prompt, engine_ids: Sequence[int], *, given: tuple[int, ...] = ()) -> None:
    """Raise unless the engine read exactly the ids that the trainer will score: the prompt, and the answer's prefix behind it.

    Raises:
        RunError: names the row, both lengths and the first difference.
    """
    ours = [*prompt.input_ids, *given]
    theirs = list(engine_ids)
    if ours == theirs:
        return
    first = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    raise RunError(
        f"row {prompt.sample.id}: trainer and engine read different prompts ({len(ours)} and {len(theirs)} tokens, "
        f"first difference at {first}); are the processors of the two the same?"
    )


def sampled_logprobs(token_ids: Sequence[int], maps: Sequence[Mapping[int, Any] | None] | None, *, row: str) -> tuple[float, ...]:
    """The log-prob of every sampled token, looked up by its id: a map's first entry may be another token.

    NaN when the engine's number is not finite (it cannot be used in a ratio; `parity.compare` counts them).

    Raises:
        RunError: the engine gave no entry for a token.
    """
    if maps is None or len(maps) != len(token_ids):
        raise RunError(f"row {row}: the engine gave {len(token_ids)} tokens and {len(maps or ())} log-probs")
    return tuple(_lookup(t, m, row=row, step=i) for i, (t, m) in enumerate(zip(token_ids, maps, strict=True)))


def _lookup(token_id: int, entries: Mapping[int, Any] | None, *, row: str, step: int) -> float:
    entry = None if entries is None else entries.get(token_id)
    if entry is None or entry.logprob is None:
        raise RunError(f"row {row}: the engine gave no log-prob for token {token_id} at step {step}")
    value = float(entry.logprob)
    return value if math.isfinite(value) else math.nan
