"""Networks with attention: vision transformers, a text transformer, and BERT with its weights.

In: sizes. Out: torch modules, their vocabulary and tokenizer, statistics of their weights. No
optimiser is known here. Open `vision` first, it is the smallest; `bert` has the pretrained
classifier, `text` is paper C's.
"""

from lib.networks.text import TextTransformer
from lib.networks.vision import VisionTransformer

__all__ = ["TextTransformer", "VisionTransformer"]
