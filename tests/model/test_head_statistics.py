"""Top-k, log-probs at given ids and divergences of whole distributions: against enumeration in fp64, and what must not matter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from vtgrl.bench.measure.work import largest_tensor
from vtgrl.core.errors import ConfigError
from vtgrl.model.head import head_output
from vtgrl.model.types import Distribution, PolicyOutput, Statistics

BETAS = (0.0, 0.3, 0.5, 1.0)
T_STUDENT, T_TEACHER = 0.7, 1.3


@dataclass
class Toy:
    """A student with hidden size D and V ids, and a teacher with its own; fp64."""

    rows: int = 13
    width: int = 5
    vocab: int = 11
    other_vocab: int = 11
    other_width: int = 3
    bias: bool = True

    def __post_init__(self) -> None:
        g = torch.Generator().manual_seed(0)

        def randn(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=g, dtype=torch.float64)

        self.hidden, self.weight, self.bias_V = (
            t.requires_grad_() for t in (randn(self.rows, self.width), randn(self.vocab, self.width), randn(self.vocab))
        )
        self.target = torch.randint(0, self.vocab, (self.rows,), generator=g)
        other = randn(self.rows, self.other_width), randn(self.other_vocab, self.other_width), randn(self.other_vocab)
        self.teacher = Distribution(*other, T_TEACHER)
        self.loss_weights = randn(self.rows, 40)

    @property
    def trained(self) -> list[torch.Tensor]:
        return [self.hidden, self.weight, *([self.bias_V] if self.bias else [])]

    def ours(self, statistics: Statistics, *, chunk_elements: int = 44, entropy: bool = False) -> PolicyOutput:
        return head_output(
            self.hidden,
            weight_VD=self.weight,
            bias_V=self.bias_V if self.bias else None,
            target_R=self.target,
            temperature=T_STUDENT,
            entropy=entropy,
            statistics=statistics,
            chunk_elements=chunk_elements,
        )

    def logp_RV(self, shared: int | None = None) -> torch.Tensor:
        """By the plain computation, over the first `shared` ids."""
        logits = F.linear(self.hidden, self.weight, self.bias_V if self.bias else None)
        return (logits[:, :shared] / T_STUDENT).log_softmax(-1)

    def teacher_RV(self, shared: int | None = None) -> torch.Tensor:
        logits = F.linear(self.teacher.hidden_RD, self.teacher.weight_VD, self.teacher.bias_V)
        return (logits[:, :shared] / T_TEACHER).log_softmax(-1)

    def gradients(self, value: torch.Tensor) -> list[torch.Tensor]:
        """Of a sum with fixed weights, so that no row or column is like another."""
        weights = self.loss_weights[:, : value.shape[1]] if value.dim() == 2 else self.loss_weights[:, 0]
        return list(torch.autograd.grad((value * weights).sum(), self.trained))


def same(ours: list[torch.Tensor], wanted: list[torch.Tensor], rtol: float = 1e-10) -> None:
    for a, b in zip(ours, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=1e-12)


def by_enumeration(s_RV: torch.Tensor, t_RV: torch.Tensor, beta: float) -> torch.Tensor:
    """Sum over the vocabulary, from the definition."""
    s, t = s_RV.exp(), t_RV.exp()
    if beta == 0.0:
        return (t * (t_RV - s_RV)).sum(-1)
    if beta == 1.0:
        return (s * (s_RV - t_RV)).sum(-1)
    m = ((1 - beta) * s + beta * t).log()
    return beta * (t * (t_RV - m)).sum(-1) + (1 - beta) * (s * (s_RV - m)).sum(-1)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("vocab", "other_vocab"), [(11, 11), (11, 8), (8, 11)], ids=["same ids", "student has more", "teacher has more"])
@pytest.mark.parametrize("beta", BETAS)
def test_divergence_and_its_gradient(beta: float, vocab: int, other_vocab: int, bias: bool) -> None:
    toy = Toy(vocab=vocab, other_vocab=other_vocab, bias=bias)
    shared = min(vocab, other_vocab)
    ours = toy.ours(Statistics(against=toy.teacher, beta=beta)).divergence_R
    wanted = by_enumeration(toy.logp_RV(shared), toy.teacher_RV(shared), beta)
    assert ours is not None
    assert (ours > 0).all()
    same([ours, *toy.gradients(ours)], [wanted, *toy.gradients(wanted)])


@pytest.mark.parametrize("beta", BETAS)
def test_a_distribution_is_at_no_distance_from_itself(beta: float) -> None:
    toy = Toy()
    own = toy.ours(Statistics(distribution=True)).distribution
    assert own is not None
    assert not own.hidden_RD.requires_grad
    apart = toy.ours(Statistics(against=own, beta=beta)).divergence_R
    assert apart is not None
    same([apart, *toy.gradients(apart)], [torch.zeros(13, dtype=torch.float64), *map(torch.zeros_like, toy.trained)])


def test_log_probs_at_given_ids_and_their_gradient() -> None:
    """Ragged sets, ids that come twice, the target among them."""
    toy = Toy()
    ids = torch.randint(0, 11, (13, 4), generator=torch.Generator().manual_seed(1))
    ids[:, 1] = ids[:, 0]
    ids[:, 2] = toy.target
    mask = torch.rand(13, 4, generator=torch.Generator().manual_seed(2)) < 0.6
    ids[~mask] = 10**6  # padding is never looked up
    assert 0 < mask.sum() < mask.numel()
    ours = toy.ours(Statistics(ids_Rk=ids, mask_Rk=mask)).ids_logp_Rk
    wanted = toy.logp_RV().gather(1, ids.masked_fill(~mask, 0)) * mask
    assert ours is not None
    same([ours, *toy.gradients(ours)], [wanted, *toy.gradients(wanted)])


@pytest.mark.parametrize("k", [1, 3, 11])
def test_top_k_and_its_gradient(k: int) -> None:
    toy = Toy()
    ours, wanted = toy.ours(Statistics(top_k=k)), toy.logp_RV().topk(k, dim=-1)
    assert ours.top_ids_Rk is not None
    assert ours.top_logp_Rk is not None
    assert torch.equal(ours.top_ids_Rk, wanted.indices)
    same([ours.top_logp_Rk, *toy.gradients(ours.top_logp_Rk)], [wanted.values, *toy.gradients(wanted.values)])


def everything(toy: Toy, beta: float = 0.4) -> Statistics:
    ids = torch.randint(0, 11, (toy.rows, 2), generator=torch.Generator().manual_seed(3))
    return Statistics(top_k=3, ids_Rk=ids, against=toy.teacher, beta=beta)


def values_of(output: PolicyOutput) -> torch.Tensor:
    parts = (output.logp_R, output.entropy_R, output.ids_logp_Rk, output.top_logp_Rk, output.divergence_R)
    return torch.cat([part.view(len(output.logp_R), -1) for part in parts if part is not None], dim=1)


@pytest.mark.parametrize("chunk_elements", [1, 66, 10**6])
def test_chunks_change_nothing(chunk_elements: int) -> None:
    """Everything at once: one row a chunk, three rows, all rows."""
    toy = Toy()
    outputs = [values_of(toy.ours(everything(toy), chunk_elements=n, entropy=True)) for n in (chunk_elements, 44)]
    assert outputs[0].shape == (13, 8)
    same([outputs[0], *toy.gradients(outputs[0])], [outputs[1], *toy.gradients(outputs[1])], rtol=1e-9)


@pytest.mark.parametrize("beta", BETAS)
def test_everything_together_agrees_numerically(beta: float) -> None:
    toy = Toy(rows=3, width=2)

    def outputs(*trained: torch.Tensor) -> Any:
        toy.hidden, toy.weight, toy.bias_V = trained
        return values_of(toy.ours(everything(toy, beta), entropy=True))

    assert torch.autograd.gradcheck(outputs, tuple(toy.trained))


def test_the_whole_vocabulary_as_candidates_is_the_reverse_kl() -> None:
    """k = V and weights pi_S, fixed: -sum_v pi(v) delta(v) log pi(v) has the gradient of KL(S || T)."""
    toy = Toy()
    every = torch.arange(11).expand(13, -1)
    logp = toy.ours(Statistics(ids_Rk=every)).ids_logp_Rk
    apart = toy.ours(Statistics(against=toy.teacher)).divergence_R
    assert logp is not None
    assert apart is not None
    reward = (logp.exp() * (toy.teacher_RV() - logp)).detach()
    same(toy.gradients(-(reward * logp).sum(1)), toy.gradients(apart))


def test_numbers_by_hand() -> None:
    """Logits s = (2, 1, 0, -1), t = (1, 1.5, 0, -1): -grad KL(S || T) = (-.3056, .2429, .0458, .0168)."""
    s, t = (torch.tensor([v], dtype=torch.float64) for v in ((2.0, 1.0, 0.0, -1.0), (1.0, 1.5, 0.0, -1.0)))
    bias = s[0].clone().requires_grad_()
    nothing, weight = torch.zeros(1, 1).double(), torch.zeros(4, 1).double()
    teacher = Distribution(nothing, weight, t[0], 1.0)
    out = head_output(nothing, weight_VD=weight, bias_V=bias, target_R=torch.tensor([0]), statistics=Statistics(against=teacher))
    assert out.divergence_R is not None
    (gradient,) = torch.autograd.grad(-out.divergence_R.sum(), [bias])
    assert gradient.tolist() == pytest.approx([-0.3056, 0.2429, 0.0458, 0.0168], abs=1e-4)


@pytest.mark.parametrize(("student", "teacher"), [(torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)])
def test_policies_of_different_types(student: torch.dtype, teacher: torch.dtype) -> None:
    """Values are fp32, gradients have the student's type; against fp64 on the same rounded numbers."""
    toy = Toy(rows=64, width=32, vocab=128, other_vocab=128, other_width=16)
    for name in ("hidden", "weight", "bias_V"):
        setattr(toy, name, getattr(toy, name).detach().to(student).requires_grad_())
    parts = (toy.teacher.hidden_RD, toy.teacher.weight_VD, toy.teacher.bias_V)
    toy.teacher = Distribution(*(t.to(teacher) for t in parts if t is not None), T_TEACHER)
    ours = toy.ours(Statistics(against=toy.teacher, beta=0.5), chunk_elements=1024).divergence_R
    assert ours is not None
    assert ours.dtype == torch.float32
    found = toy.gradients(ours)
    assert {g.dtype for g in found} == {student}
    for name in ("hidden", "weight", "bias_V"):
        setattr(toy, name, getattr(toy, name).detach().double().requires_grad_())
    toy.teacher = Distribution(*(t.to(teacher).double() for t in parts if t is not None), T_TEACHER)
    wanted = by_enumeration(toy.logp_RV(), toy.teacher_RV(), 0.5)
    assert (ours - wanted).abs().max() <= 0.05
    for a, b in zip(found, toy.gradients(wanted), strict=True):
        assert (a.double() - b).norm() / b.norm() <= 0.03


def test_nothing_as_large_as_the_logits_is_ever_made() -> None:
    """512 rows, 4,096 ids, both distributions, everything asked for, forward and backward."""
    rows, vocab, width, chunk = 512, 4096, 16, 2**15
    toy = Toy(rows=rows, width=width, vocab=vocab, other_vocab=vocab)

    def work() -> None:
        ids = torch.zeros(rows, 2, dtype=torch.int64)
        statistics = Statistics(top_k=3, ids_Rk=ids, against=toy.teacher, beta=0.5)
        toy.gradients(values_of(toy.ours(statistics, chunk_elements=chunk, entropy=True)))

    assert largest_tensor(work) <= vocab * width < rows * vocab / 8
    assert largest_tensor(lambda: toy.logp_RV()) == rows * vocab, "the probe sees a full one"


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"beta 1.5"):
        Statistics(beta=1.5)
    with pytest.raises(ConfigError, match="top_k -1"):
        Statistics(top_k=-1)
    toy = Toy()
    short = replace(toy.teacher, hidden_RD=toy.teacher.hidden_RD[:5])
    with pytest.raises(AssertionError, match="same rows"):
        toy.ours(Statistics(against=short))
