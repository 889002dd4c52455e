"""Networks with attention: vision transformers, a text transformer, BERT with its weights and
vocabulary.

In: sizes. Out: torch modules, their tokenizer, statistics of their weights. No optimiser is known
here. Open `vision` first, it is the smallest; `bert` finds pretrained weights, `text` is paper C's
classifier.
"""

from lib.networks.text import TextTransformer
from lib.networks.vision import VisionTransformer

__all__ = ["TextTransformer", "VisionTransformer"]
