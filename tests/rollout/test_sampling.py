"""The sampled distribution and its log-probs."""

import math

import pytest
import torch

from vtgrl.rollout.sampling import draw, greedy, logprob_of, processed_logprobs

LOGITS = torch.tensor([[2.0, 1.0, 0.5, -1.0, -3.0]])


def test_temperature_goes_on_the_logits_before_the_softmax() -> None:
    """Public fault 10: five logits, T = 0.6; the ratio to a trainer that scores at T is 1."""
    logp = processed_logprobs(LOGITS, temperature=0.6)
    trainer = torch.tensor([math.exp(x / 0.6) for x in LOGITS[0].tolist()]).double()
    trainer = (trainer / trainer.sum()).log()
    assert torch.allclose(logp[0].double(), trainer, atol=1e-6)
    assert not torch.allclose(logp[0], LOGITS.log_softmax(-1)[0], atol=0.1)  # untempered
    assert not torch.allclose(logp[0], LOGITS.log_softmax(-1)[0] / 0.6, atol=0.1)  # a divided log-prob is no distribution


def test_top_k_renormalises_over_what_stays() -> None:
    logp = processed_logprobs(LOGITS, temperature=1.0, top_k=2)[0]
    assert logp[2:].tolist() == [-math.inf] * 3
    assert torch.allclose(logp[:2].exp().sum(), torch.tensor(1.0))
    assert math.isclose(logp[0] - logp[1], 1.0, rel_tol=1e-5)


def test_top_k_keeps_ties_with_the_kth() -> None:
    logp = processed_logprobs(torch.tensor([[1.0, 1.0, 1.0, 0.0]]), temperature=1.0, top_k=2)[0]
    assert logp.isfinite().tolist() == [True, True, True, False]


@pytest.mark.parametrize(("top_p", "kept"), [(1e-12, 1), (0.01, 1), (0.6, 1), (0.7, 2), (0.82, 2), (0.95, 3), (1.0, 5)])
def test_top_p_keeps_the_smallest_set_that_reaches_p(top_p: float, kept: int) -> None:
    """Probabilities are 0.607, 0.223, 0.135, 0.030, 0.004; their sums 0.607, 0.830, 0.966, 0.996."""
    logp = processed_logprobs(LOGITS, temperature=1.0, top_p=top_p)[0]
    assert int(logp.isfinite().sum()) == kept
    assert torch.allclose(logp.exp().sum(), torch.tensor(1.0))


def test_greedy_reports_the_untempered_uncut_distribution() -> None:
    logp = processed_logprobs(LOGITS, temperature=0.0, top_p=0.1, top_k=1)
    assert torch.equal(logp, LOGITS.log_softmax(-1))
    assert greedy(logp).tolist() == [0]


def test_half_precision_logits_are_normalised_in_fp32() -> None:
    logp = processed_logprobs(LOGITS.bfloat16(), temperature=0.7)
    assert logp.dtype == torch.float32
    assert torch.allclose(logp.exp().sum(-1), torch.ones(1), atol=1e-6)


def test_draws_follow_the_distribution_and_never_a_cut_token() -> None:
    logp = processed_logprobs(LOGITS, temperature=1.0, top_k=3)
    uniform = torch.rand(20_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    token = draw(logp.expand(len(uniform), -1), uniform)
    share = token.bincount(minlength=5) / len(token)
    assert torch.allclose(share, logp[0].exp(), atol=0.01)
    assert share[3:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2.0**-53])
def test_the_ends_of_the_unit_interval_draw_a_possible_token(uniform: float) -> None:
    logp = processed_logprobs(torch.tensor([[-50.0, 3.0, 2.0, -60.0]]), temperature=1.0, top_k=2)
    assert draw(logp, torch.tensor([uniform], dtype=torch.float64)).item() in (1, 2)


def test_a_rows_draw_does_not_depend_on_its_neighbours() -> None:
    g = torch.Generator().manual_seed(1)
    logits, uniform = torch.randn(7, 50, generator=g), torch.rand(7, generator=g, dtype=torch.float64)
    logp = processed_logprobs(logits, temperature=0.8, top_p=0.9)
    together = draw(logp, uniform)
    apart = torch.cat([draw(processed_logprobs(logits[i : i + 1], temperature=0.8, top_p=0.9), uniform[i : i + 1]) for i in range(7)])
    assert torch.equal(together, apart)
    assert torch.equal(logprob_of(logp, together), logp[torch.arange(7), together])


def test_same_cuts_as_vllm() -> None:
    pytest.importorskip("vllm")
    from vtgrl.rollout.engines.vllm_llm import import_vllm

    import_vllm()
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

    logits = torch.randn(16, 300, generator=torch.Generator().manual_seed(2)) * 3
    ours = processed_logprobs(logits, temperature=0.7, top_p=0.8, top_k=40)
    theirs = apply_top_k_top_p(logits / 0.7, torch.full((16,), 40), torch.full((16,), 0.8)).log_softmax(-1)
    assert torch.equal(ours.isfinite(), theirs.isfinite())
    assert torch.allclose(ours, theirs, atol=1e-6)
