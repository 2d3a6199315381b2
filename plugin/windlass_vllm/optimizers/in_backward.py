"""The optimizer of a model: a hook on each weight, and a state that can be saved."""

from collections.abc import Callable, Iterable

import torch

from windlass_vllm.optimizers.projection import noise_seed
from windlass_vllm.optimizers.rounding import subtract
from windlass_vllm.optimizers.rules import WeightState, update_of
from windlass_vllm.optimizers.settings import OptimizerSettings
from windlass_vllm.refusal import Refused

# Their rows are vocabulary: most have no gradient in a step, and a projection would mix them.
_VOCABULARY = ("embed_tokens.weight", "lm_head.weight", "wte.weight")


def is_matrix(name: str, weight: torch.Tensor) -> bool:
    """Returns whether APOLLO projects a weight's gradient: matrices other than the vocabulary's."""
    return weight.ndim == 2 and not name.endswith(_VOCABULARY)


class InBackwardOptimizer:
    """Steps each weight when its gradient is whole, and frees the gradient.

    Gradients of two passes cannot be summed: a pass is a step. A gradient that is infinite or no
    number raises Refused out of the pass, and leaves its weight alone; weights that came before it
    have moved, so go back to a checkpoint or go on without this one.
    """

    def __init__(
        self,
        weights: Iterable[tuple[str, torch.Tensor]],
        settings: OptimizerSettings,
        projects: Callable[[str, torch.Tensor], bool] = is_matrix,
    ) -> None:
        self.settings = settings
        self.weights = {name: weight for name, weight in weights if weight.requires_grad}
        for name, weight in self.weights.items():
            if weight.dtype not in (torch.float32, torch.bfloat16):
                raise Refused("invalid_setting", f"{name} is of {weight.dtype}")
        self.states: dict[str, WeightState] = {}
        self._rate = settings.learning_rate
        self._hooks = []
        for number, (name, weight) in enumerate(self.weights.items(), 1):
            # With as many rows as the shorter side a projection would save nothing.
            fits = weight.ndim == 2 and min(weight.shape) > settings.rank
            low_rank = settings.kind == "apollo" and fits and projects(name, weight)
            self.states[name] = WeightState(seed=settings.seed + number, low_rank=low_rank)
            hook = weight.register_post_accumulate_grad_hook(self._hook(name))
            self._hooks.append(hook)

    def backward(self, loss: torch.Tensor, learning_rate: float | None = None) -> None:
        """Runs a backward pass, which is one step; raises Refused."""
        self._rate = self.settings.learning_rate if learning_rate is None else learning_rate
        loss.backward()

    def stepped(self, gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Returns the weights after a step, and takes their gradients out; raises Refused before.

        The weights themselves stay for the caller to overwrite. Gradients come from
        `torch.autograd.grad`, which runs no hook.
        """
        for name, gradient in gradients.items():
            _check_finite(name, gradient)
        self._rate, found = self.settings.learning_rate, {}
        with torch.no_grad():
            for name in list(gradients):
                found[name] = self.weights[name].detach().clone()
                self._apply(name, found[name], gradients.pop(name))
        return found

    def close(self) -> None:
        """Takes the hooks off the weights."""
        for hook in self._hooks:
            hook.remove()

    def _hook(self, name: str) -> Callable[[torch.Tensor], None]:
        def apply(weight: torch.Tensor) -> None:
            gradient, weight.grad = weight.grad, None
            if gradient is None:
                return
            with torch.no_grad():
                self._apply(name, weight, gradient)

        return apply

    def _apply(self, name: str, weight: torch.Tensor, gradient: torch.Tensor) -> None:
        _check_finite(name, gradient)
        state, settings, rate = self.states[name], self.settings, self._rate
        update = update_of(gradient.float(), state, settings, rate)
        if settings.weight_decay:
            update += (weight.float() - update) * (rate * settings.weight_decay)
        seed = noise_seed(state.seed, state.step)
        subtract(weight, update, settings.rounding, state.tensors, seed)


def _check_finite(name: str, gradient: torch.Tensor) -> None:
    if not gradient.isfinite().all():
        raise Refused("non_finite_gradient", f"the gradient of {name} has no finite numbers")
