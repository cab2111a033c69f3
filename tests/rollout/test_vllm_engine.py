"""vLLM itself, in this process, on a CPU: it reads what the trainer reads and says what the trainer says."""

import importlib.util
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from rollout_kit import FAMILIES, SAMPLING, Kit, check_prefixed, ids, parity, prefer, some_prefixes

from vtgrl.core.errors import RunError
from vtgrl.core.schema import LoraConfig
from vtgrl.core.types import Sample
from vtgrl.rollout.protocol import RolloutEngine

pytestmark = [pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"), pytest.mark.timeout(240)]

N = 4


@dataclass
class Running:
    """One engine a family; tests publish their own policy into it."""

    family: str
    engine: RolloutEngine
    make_kit: Callable[..., Kit]

    def publish(self, kit: Kit) -> int:
        self.engine.publish(kit.policy, version=self.engine.version + 1)
        return self.engine.version

    def draw(self, kit: Kit, *, seed: int = 1, n: int = N, prompts: Any = None, prefixes: Any = None, **sampling: Any) -> Any:
        asked = kit.prompts if prompts is None else prompts
        settings = {"sampling": replace(SAMPLING, **sampling), "seed": seed, "version": self.engine.version}
        return self.engine.generate(asked, n=n, prefixes=prefixes, **settings)


@pytest.fixture(scope="module", params=FAMILIES)
def running(request: pytest.FixtureRequest, make_kit: Callable[..., Kit]) -> Iterator[Running]:
    engine = make_kit(request.param).engine("vllm_colocate", kv_cache_gb=0.2, max_num_seqs=64)
    yield Running(request.param, engine, make_kit)
    engine.close()
    engine.close()


def test_log_probs_are_the_trainers_before_and_after_an_update(running: Running) -> None:
    """Also that the engine read the trainer's ids: another prompt raises (public fault 12)."""
    kit = running.make_kit(running.family)
    assert running.engine.version == 0
    before = running.draw(kit)
    assert [len(group) for group in before] == [N] * 3
    assert parity(kit.policy, kit.prompts, before) <= 1e-5
    kit.shake()
    stale = running.draw(kit)
    assert parity(kit.policy, kit.prompts, stale) > 1e-3  # the test can tell
    version = running.publish(kit)
    after = running.draw(kit)
    assert {c.policy_version for group in after for c in group} == {version}
    assert parity(kit.policy, kit.prompts, after) <= 1e-5


def test_keys_of_the_old_weights_are_forgotten(running: Running) -> None:
    """A prompt longer than a cache block (128 tokens on a CPU): vLLM keeps its keys for the next request."""
    kit = running.make_kit(running.family)
    long = [kit.builder.build(Sample("long", "text", "What is two plus two? " + "Think well. " * 45))]
    assert len(long[0].input_ids) > 200
    running.publish(kit)
    assert parity(kit.policy, long, running.draw(kit, prompts=long)) <= 1e-5
    kit.shake()
    running.publish(kit)
    assert parity(kit.policy, long, running.draw(kit, prompts=long)) <= 1e-5


def test_temperature_and_greedy(running: Running) -> None:
    kit = running.make_kit(running.family)
    running.publish(kit)
    assert parity(kit.policy, kit.prompts, running.draw(kit, temperature=0.6), temperature=0.6) <= 1e-5
    greedy = running.draw(kit, temperature=0.0)
    assert parity(kit.policy, kit.prompts, greedy) <= 1e-5
    ours = kit.engine("hf").generate(kit.prompts, n=N, sampling=replace(SAMPLING, temperature=0.0), seed=0, version=0)
    assert ids(greedy) == ids(ours)


def test_seeds(running: Running) -> None:
    """Public fault 17, and independence of the batch split."""
    kit = running.make_kit(running.family)
    first = ids(running.draw(kit))
    assert ids(running.draw(kit)) == first
    assert ids(running.draw(kit, seed=2)) != first
    assert all(len(set(group)) == N for group in first)
    assert ids(running.draw(kit, prompts=kit.prompts[2:])) == first[2:]


def test_answers_go_on_from_their_prefixes(running: Running) -> None:
    """T13, T14: ragged prefixes in a group; prompt and prefix reach the engine as the ids that the trainer scores."""
    kit = running.make_kit(running.family)
    prefer(kit.policy, min(kit.builder.eos_ids), by=0.1)
    running.publish(kit)
    given = some_prefixes(kit, N)
    out = running.draw(kit, prefixes=given, max_tokens=40)
    check_prefixed(kit, out, given, most=40)
    assert parity(kit.policy, kit.prompts, out) <= 1e-5
    assert ids(running.draw(kit, prefixes=given, max_tokens=40)) == ids(out)
    again = running.draw(kit, prefixes=given, max_tokens=40, seed=2)
    assert ids(again) != ids(out)
    free = running.draw(kit, max_tokens=40)
    for group, alone, prefixes in zip(out, free, given, strict=True):
        assert [c.token_ids for c, p in zip(group, prefixes, strict=True) if not p] == [
            c.token_ids for c, p in zip(alone, prefixes, strict=True) if not p
        ]
    empty: Any = [[()] * N] * len(kit.prompts)
    assert running.draw(kit, prefixes=empty, max_tokens=40) == free


def test_greedy_answers_with_prefixes_are_those_of_the_other_engine(running: Running) -> None:
    kit = running.make_kit(running.family)
    running.publish(kit)
    given, cold = some_prefixes(kit, N), replace(SAMPLING, temperature=0.0, max_tokens=40)
    theirs = kit.engine("hf").generate(kit.prompts, n=N, sampling=cold, seed=0, version=0, prefixes=given)
    assert ids(running.draw(kit, prefixes=given, max_tokens=40, temperature=0.0)) == ids(theirs)


def test_the_trainers_generators_are_left_alone(running: Running) -> None:
    kit = running.make_kit(running.family)
    state = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    running.draw(kit)
    assert torch.equal(torch.get_rng_state(), state[0])
    assert random.getstate() == state[1]
    assert np.array_equal(np.random.get_state()[1], state[2])


def test_answers_end_with_the_end_token(running: Running) -> None:
    kit = running.make_kit(running.family)
    prefer(kit.policy, min(kit.builder.eos_ids))
    running.publish(kit)
    out = running.draw(kit, n=8, max_tokens=40)
    answers = [c for group in out for c in group]
    assert len({len(c.token_ids) for c in answers}) > 4
    for c in answers:
        ends = [t in kit.builder.eos_ids for t in c.token_ids]
        assert not any(ends[:-1])
        assert ends[-1] == (c.finish == "stop")
        assert kit.builder.decode(c.token_ids) == c.text
    assert "stop" in {c.finish for c in answers}
    assert parity(kit.policy, kit.prompts, out) <= 1e-5


def test_a_sampled_video_placeholder_is_the_plain_token(running: Running) -> None:
    kit = running.make_kit(running.family)
    token = kit.builder.family.vision_token_id(kit.loaded.config)
    if token is None:
        pytest.skip("a text model has no placeholder")
    prefer(kit.policy, token)
    running.publish(kit)
    out = running.draw(kit)
    assert sum(c.token_ids.count(token) for group in out for c in group) > 8
    assert parity(kit.policy, kit.prompts, out) <= 1e-5


def test_adapters_arrive_merged(running: Running) -> None:
    kit = running.make_kit(running.family, lora=LoraConfig(r=4, alpha=8))
    running.publish(kit)
    base = running.draw(kit)
    assert parity(kit.policy, kit.prompts, base) <= 1e-5
    with torch.no_grad():
        for name, param in kit.policy.hf.named_parameters():
            if "lora_B" in name:
                param.normal_(std=0.1, generator=torch.Generator().manual_seed(1))
    version = running.publish(kit)
    adapted = running.draw(kit)
    assert ids(adapted) != ids(base)
    assert parity(kit.policy, kit.prompts, adapted) <= 1e-5
    with pytest.raises(RunError, match=f"version {version}, not 0"):
        running.engine.generate(kit.prompts, n=1, sampling=SAMPLING, seed=0, version=0)


@pytest.mark.parametrize(
    "parts", [{"freeze": ("vision",)}, {"freeze": ("vision", "merger", "embed")}, {"lora": LoraConfig(r=4, targets=("q_proj", "up_proj"))}]
)
def test_frozen_weights_are_sent_once(running: Running, monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any]) -> None:
    """vLLM holds q, k and v as one weight: an adapter on q alone must not spoil the other two."""
    kit = running.make_kit(running.family, **parts)
    whole, counts = running.engine.backend.reload, []  # type: ignore[attr-defined]

    def counting(weights: Any, *, kept: frozenset[str]) -> None:
        sent = list(weights)
        counts.append(sum(w.numel() for _, w in sent))
        whole(sent, kept=kept)

    monkeypatch.setattr(running.engine.backend, "reload", counting)  # type: ignore[attr-defined]
    for seed in (1, 2, 3):
        kit.shake(seed=seed)
        running.publish(kit)
        assert parity(kit.policy, kit.prompts, running.draw(kit)) <= 1e-5
    assert counts[1] == counts[2] <= counts[0]
    if running.family != "text" or "lora" in parts:
        assert counts[1] < counts[0]


def test_a_weight_that_trains_is_missed_also_when_others_are_kept(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    kit = running.make_kit(running.family, freeze=("vision", "merger", "embed"))
    running.publish(kit)
    whole = running.engine.backend.reload  # type: ignore[attr-defined]

    def without_a_norm(weights: Any, *, kept: frozenset[str]) -> None:
        assert kept
        whole([(n, w) for n, w in weights if not n.endswith("layers.0.input_layernorm.weight")], kept=kept)

    monkeypatch.setattr(running.engine.backend, "reload", without_a_norm)  # type: ignore[attr-defined]
    with pytest.raises(RunError, match=r"vLLM got no weights for \S*layers\.0\.input_layernorm\.weight:"):
        running.publish(kit)


def test_weights_that_vllm_misses_are_an_error(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM only warns, and goes on with the old ones."""
    kit = running.make_kit(running.family)
    whole = running.engine.backend.reload  # type: ignore[attr-defined]

    def without_a_norm(weights: Any, *, kept: frozenset[str]) -> None:
        whole([(n, w) for n, w in weights if not n.endswith("layers.0.input_layernorm.weight")], kept=kept)

    monkeypatch.setattr(running.engine.backend, "reload", without_a_norm)  # type: ignore[attr-defined]
    with pytest.raises(RunError, match=r"vLLM got no weights for .*layers\.0\.input_layernorm\.weight"):
        running.publish(kit)
    monkeypatch.undo()
    running.publish(kit)
    assert parity(kit.policy, kit.prompts, running.draw(kit)) <= 1e-5
