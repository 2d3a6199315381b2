"""A run of all parameters: what it is between two operations, and what each does to it."""

from collections.abc import Iterator, Sequence

import torch

from windlass_agent.tuning.computing import Computed, PassLosses, PassPart, pass_losses
from windlass_agent.tuning.full.network import FullNetwork, own
from windlass_agent.tuning.losses.metrics import metrics, own_metrics
from windlass_agent.tuning.network.adapter import Tensors
from windlass_agent.tuning.optimizers.adamw import MEAN, SQUARE, adamw
from windlass_agent.tuning.requests.operations import (
    ComputeLoss,
    LossResult,
    StepOptimizer,
    StepResult,
)
from windlass_agent.tuning.requests.refusal import TuningRefused


class FullRun:
    """Weights, gradients and moments of a run; steps write where they lie.

    Each example is a pass of its own, so that no other changes a bit of its results. Several
    processes take one example each at a time, and their gradients are added.
    """

    def __init__(self, network: FullNetwork, seed: int):
        self.network = network
        self.seed = seed
        self.moments: Tensors = {}
        self.steps = 0
        self.generator = torch.Generator().manual_seed(seed).get_state()

    @property
    def weights(self) -> Tensors:
        """The parameters, or what of them lies here."""
        return {name: own(one) for name, one in self.network.learned.items()}

    @property
    def gradients(self) -> Tensors:
        """Gradients that were not applied yet; none after a step."""
        found = self.network.learned.items()
        return {name: own(one.grad) for name, one in found if one.grad is not None}

    @property
    def tensors(self) -> Iterator[torch.Tensor]:
        """All that lies on the device: weights, buffers, gradients and moments."""
        yield from self.network.network.buffers()
        for parameter in self.network.learned.values():
            yield parameter
            if parameter.grad is not None:
                yield parameter.grad
        yield from self.moments.values()

    def compute(self, operation: ComputeLoss) -> LossResult:
        """Adds the gradients of an operation; raises TuningRefused, having changed nothing."""
        before = self._kept() if operation.learns else {}
        try:
            found = self._passed(operation)
            self._judge(operation, found)
        except BaseException:
            if operation.learns:
                self._restore(before)
            raise
        losses = [one.losses[0] for one in found]
        logprobs = [one.logprobs[0] for one in found]
        named = metrics(losses, logprobs, operation.examples, operation.settings)
        named = own_metrics([one.own_metrics[0] for one in found]) | named
        return LossResult(logprobs=logprobs, metrics=named)

    def step(self, operation: StepOptimizer) -> StepResult:
        """Goes along the gradients; raises TuningRefused, having changed nothing."""
        gradients = self.gradients
        length = self._norm(gradients)
        factor = 1.0
        if 0 < operation.grad_clip_norm < length:
            factor = operation.grad_clip_norm / length
        # Once to look and once to write: new values of all parameters would not fit beside the old.
        sound = [
            bool(torch.isfinite(value).all())
            for _, made in self._stepped(operation, gradients, factor)
            for value in made.values()
        ]
        if not all(self.network.ranks.gathered(all(sound))):
            raise TuningRefused("non_finite_step", "the step would leave weights without a number")
        weights = self.weights
        for name, made in self._stepped(operation, gradients, factor):
            weights[name].copy_(made.pop(name))
            self.moments |= made
        self._restore({})
        self.steps += 1
        return StepResult(step=self.steps, metrics={"gradient_norm:max": length})

    def take_gradients(self, gradients: Tensors) -> None:
        """Puts gradients in place that were saved, of whatever of them lies here."""
        for name, gradient in gradients.items():
            self.network.take_gradient(name, gradient)

    def forget(self) -> None:
        """Begins the optimizer afresh, without gradients."""
        self._restore({})
        self.moments = {}
        self.steps = 0

    def _passed(self, operation: ComputeLoss) -> list[Computed]:
        """Losses of all examples in their order, whichever process computed them."""
        ranks, count = self.network.ranks, len(operation.examples)
        found: dict[int, Computed] = {}
        for start in range(0, count, ranks.count):
            place = start + ranks.rank
            # Whoever has no example left computes another's for nothing: all gather, or none.
            losses = self._example(operation, place if place < count else start, place < count)
            found[place] = losses.computed({})
        every = {place: one for part in ranks.gathered(found) for place, one in part.items()}
        return [every[place] for place in range(count)]

    def _example(self, operation: ComputeLoss, place: int, counts: bool) -> PassLosses:
        base = self.network.base
        part = PassPart(
            examples=[operation.examples[place]],
            loss=operation.loss,
            settings=operation.settings,
            learns=operation.learns,
            document=operation.document,
            tensors={},
            scale=1.0,
        )
        with torch.set_grad_enabled(operation.learns):
            found: PassLosses = self.network(lambda: pass_losses(base, [part], [{}])[0])
            value = found.values[0]
            # A tenant's own loss need not depend on anything.
            if operation.learns and value.requires_grad:
                (value if counts else value * 0).backward()
        return found

    def _judge(self, operation: ComputeLoss, found: Sequence[Computed]) -> None:
        values = [torch.tensor(one.losses[0]) for one in found]
        values += [torch.from_numpy(one.logprobs[0]).flatten() for one in found]
        if not all(bool(torch.isfinite(one).all()) for one in values):
            raise TuningRefused("non_finite_loss", "the loss is infinite or no number")
        if operation.learns and not torch.isfinite(torch.tensor(self._norm(self.gradients))):
            raise TuningRefused("non_finite_gradient", "the gradient is infinite or no number")

    def _stepped(
        self, operation: StepOptimizer, gradients: Tensors, factor: float
    ) -> Iterator[tuple[str, Tensors]]:
        """Yields the new value of each parameter by its name, and its moments by theirs."""
        for name, weight in self.weights.items():
            # No gradient is one of zero: moments fade, and the step counts.
            along = gradients.get(name)
            along = torch.zeros_like(weight) if along is None else along
            if factor != 1.0:
                along = along * factor
            names = (f"{name}.{part}" for part in (MEAN, SQUARE))
            moments = {one: self.moments[one] for one in names if one in self.moments}
            new, made = adamw({name: weight}, {name: along}, moments, self.steps + 1, operation)
            yield name, new | made

    def _norm(self, tensors: Tensors) -> float:
        if not tensors:
            return 0.0
        parts = torch._foreach_norm([tensors[name] for name in sorted(tensors)])
        return self.network.ranks.norm(torch.stack(parts).norm())

    def _kept(self) -> dict[str, torch.Tensor]:
        found = self.network.learned.items()
        return {name: one.grad.clone() for name, one in found if one.grad is not None}

    def _restore(self, gradients: dict[str, torch.Tensor]) -> None:
        for name, parameter in self.network.learned.items():
            parameter.grad = gradients.get(name)
