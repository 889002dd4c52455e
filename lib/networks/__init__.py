"""Networks with attention: vision transformers, a text transformer, pretrained BERT.

In: sizes. Out: torch modules, their vocabulary and tokenizer, statistics of their
weights. Open `text` first, paper C's network and the smallest.
"""

from lib.networks.text import TextTransformer
from lib.networks.vision import VisionTransformer
