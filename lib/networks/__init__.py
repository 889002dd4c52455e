"""Networks with attention: vision transformers, a text transformer, pretrained BERT.

The functions build torch modules from sizes, together with a vocabulary or a tokenizer,
and compute statistics of the weights of these modules. Open `text` first, which
contains the network of paper C, the smallest one.
"""

from lib.networks.text import TextTransformer
from lib.networks.vision import VisionTransformer
