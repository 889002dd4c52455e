"""Networks with attention: vision transformers, a text transformer, pretrained BERT.

From sizes, the functions build torch modules with a vocabulary or tokenizer, and
compute statistics of their weights. Open `text` first: it contains paper C's network,
the smallest one.
"""

from lib.networks.text import TextTransformer
from lib.networks.vision import VisionTransformer
