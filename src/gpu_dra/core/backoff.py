"""Exponential back-off with full jitter."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Delays that grow from `first` to `most` seconds; jitter keeps a thousand nodes from coming back together."""

    first: float = 0.5
    most: float = 30.0
    factor: float = 2.0
    random: random.Random = field(default_factory=random.Random)
    _ceiling: float = 0.0

    def next(self) -> float:
        """Seconds to wait before the next try: between half and the whole of a ceiling that doubles up to `most`."""
        self._ceiling = min(self.most, self._ceiling * self.factor or self.first)
        return self._ceiling * (0.5 + self.random.random() / 2)

    def reset(self) -> None:
        """Start over after a success."""
        self._ceiling = 0.0
