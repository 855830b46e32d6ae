"""Links: layers with parameters, and models made of them."""

from .connection.bias import Bias as Bias
from .connection.embed_id import EmbedID as EmbedID
from .connection.linear import Linear as Linear
from .connection.scale import Scale as Scale
from .model.classifier import Classifier as Classifier
from .normalization.batch_normalization import BatchNormalization as BatchNormalization
from .normalization.layer_normalization import LayerNormalization as LayerNormalization

__all__ = ["BatchNormalization", "Bias", "Classifier", "EmbedID", "LayerNormalization", "Linear", "Scale"]
