"""The public names, for type checkers and editors; at run time they are imported when they are first asked for."""

from anygatr.algebra import Algebra as Algebra
from anygatr.costs import summary as summary
from anygatr.equivariance.expressivity import construct as construct
from anygatr.equivariance.expressivity import expressivity as expressivity
from anygatr.equivariance.solver import invariants as invariants
from anygatr.equivariance.solver import linear_maps as linear_maps
from anygatr.equivariance.solver import multilinear_maps as multilinear_maps
from anygatr.equivariance.symmetry import Symmetry as Symmetry
from anygatr.equivariance.symmetry import euclidean as euclidean
from anygatr.equivariance.symmetry import pin as pin
from anygatr.equivariance.symmetry import spin as spin
from anygatr.equivariance.symmetry import symmetry_of as symmetry_of
from anygatr.execution import backend as backend
from anygatr.execution import backends as backends
from anygatr.interface.cells import neighbours as neighbours
from anygatr.interface.model import model as model
from anygatr.interface.sight import sight as sight
from anygatr.lab.training.trained import load_run as load_run
from anygatr.networks.axial import AxialGATr as AxialGATr
from anygatr.networks.conditional import ConditionalGATr as ConditionalGATr
from anygatr.networks.gatr import GATr as GATr
from anygatr.networks.pooled import PooledGATr as PooledGATr
from anygatr.nn.width import Width as Width
from anygatr.spaces.geometry import Geometry as Geometry
from anygatr.spaces.presets import geometry as geometry

__version__: str
__all__: list[str]
