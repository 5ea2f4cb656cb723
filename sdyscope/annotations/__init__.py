"""The shardings that are written in a module, in one form for both partitioners."""

from sdyscope.annotations.model import Annotation as Annotation
from sdyscope.annotations.model import AnnotationKind as AnnotationKind
from sdyscope.annotations.model import NamedKind as NamedKind
from sdyscope.annotations.model import split_scope as split_scope
from sdyscope.annotations.model import unplaced as unplaced
from sdyscope.annotations.names import CONSTANT as CONSTANT
from sdyscope.annotations.names import folded_names as folded_names
from sdyscope.annotations.names import op_name as op_name
from sdyscope.annotations.names import op_path as op_path
from sdyscope.annotations.names import op_text as op_text
from sdyscope.annotations.names import scope_of as scope_of
from sdyscope.annotations.names import shared_name as shared_name
from sdyscope.annotations.names import shown_name as shown_name
from sdyscope.annotations.names import within_program as within_program
from sdyscope.annotations.read import LAYOUT as LAYOUT
from sdyscope.annotations.read import num_partitions as num_partitions
from sdyscope.annotations.read import other_attributes as other_attributes
from sdyscope.annotations.read import read_annotations as read_annotations
from sdyscope.annotations.values import annotated_value as annotated_value
