"""Owners of the tokens of the pass that runs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Segment:
    """Tokens `start` to `end`, and the matrices that they go through, by layer."""

    start: int
    end: int
    scale: float
    pairs: Mapping[str, Pair]


class Layout:
    """Segments of the current pass, which tile its tokens; every adapted layer reads them."""

    def __init__(self) -> None:
        self.segments: Sequence[Segment] = ()

    @contextmanager
    def use(self, segments: Sequence[Segment]) -> Iterator[None]:
        """Makes these the segments within the block."""
        self.segments = segments
        try:
            yield
        finally:
            self.segments = ()


class AdaptedLayer(torch.nn.Module):  # type: ignore[misc]  # torch is not followed
    """A frozen layer, beside it the matrices of whoever owns the rows."""

    def __init__(self, name: str, linear: torch.nn.Linear, layout: Layout):
        super().__init__()
        self.name = name
        self.linear = linear
        self._layout = layout

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The layer over all rows at once, and each segment's own product on its own rows."""
        output: torch.Tensor = self.linear(rows)
        segments = self._layout.segments
        if not any(self.name in segment.pairs for segment in segments):
            return output
        if len(segments) == 1:
            return output + self._product(rows, segments[0])
        # Split once, since the gradient of each slice would be as large as all rows.
        own = torch.split(rows, [segment.end - segment.start for segment in segments], dim=-2)
        products = [
            self._product(part, segment) for part, segment in zip(own, segments, strict=True)
        ]
        return output + torch.cat(products, dim=-2)

    def _product(self, rows: torch.Tensor, segment: Segment) -> torch.Tensor:
        pair = segment.pairs.get(self.name)
        if pair is None:
            return rows.new_zeros(*rows.shape[:-1], self.linear.out_features)
        return low_rank(rows, pair, segment.scale)


def low_rank(rows: torch.Tensor, pair: Pair, scale: float) -> torch.Tensor:
    """The scaled product of rows and both matrices, in the matrices' precision."""
    down, up = pair
    product = torch.nn.functional.linear(rows.to(down.dtype), down)
    return (torch.nn.functional.linear(product, up) * scale).to(rows.dtype)
