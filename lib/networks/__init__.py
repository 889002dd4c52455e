"""Networks with attention: vision transformers, a text transformer, and BERT with its weights.

In: sizes. Out: torch modules, their vocabulary and tokenizer, statistics of their weights. No
optimiser is known here. Open `text` first, paper C's network and the smallest; `vision` has the
transformers on pictures, `bert` the classifier, whose weights `pretrained` finds.
"""

from lib.networks.text import TextTransformer
from lib.networks.vision import VisionTransformer
