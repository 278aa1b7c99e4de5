"""Data sets: readers and writers, transforms of features, synthetic data, the demo set."""

from xmcjax.data._atomic import atomic_write as atomic_write
from xmcjax.data._dataset import FORMATS as FORMATS
from xmcjax.data._dataset import Dataset as Dataset
from xmcjax.data._dataset import Format as Format
from xmcjax.data._dataset import convert as convert
from xmcjax.data._dataset import load as load
from xmcjax.data._dataset import load_pieces as load_pieces
from xmcjax.data._dataset import save as save
from xmcjax.data._demo import Demo as Demo
from xmcjax.data._demo import load_demo as load_demo
from xmcjax.data._errors import DataFormatError as DataFormatError
from xmcjax.data._memory import MemoryBound as MemoryBound
from xmcjax.data._npz import load_npz as load_npz
from xmcjax.data._npz import save_npz as save_npz
from xmcjax.data._pairs import load_pairs as load_pairs
from xmcjax.data._power_law import make_power_law as make_power_law
from xmcjax.data._svmlight import load_svmlight as load_svmlight
from xmcjax.data._svmlight import save_svmlight as save_svmlight
from xmcjax.data._transforms import TRANSFORMS as TRANSFORMS
from xmcjax.data._transforms import Transform as Transform
from xmcjax.data._transforms import Transforms as Transforms
from xmcjax.data._transforms import fit_transforms as fit_transforms
from xmcjax.data._transforms import parse_transforms as parse_transforms
from xmcjax.data._xmc import load_xmc as load_xmc
from xmcjax.data._xmc import save_xmc as save_xmc
