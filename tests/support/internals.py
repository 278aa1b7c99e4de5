"""All that tests know of the inside of the library, and why, with that in process_internals.py."""

from tests.support.process_internals import board as board
from tests.support.process_internals import cuda as cuda
from tests.support.process_internals import cuda_topk as cuda_topk
from tests.support.process_internals import multinomial_mesh as multinomial_mesh
from tests.support.process_internals import peers as peers
from tests.support.process_internals import wire as wire

# SYSTEMS is the table of systems that commands, options and stored models share; of the others the
# parts with a proof of their own are tested: options, Platt's fit, logarithms of probabilities, the gate of
# matrices, cores, what runs where, squared norms, memory of the host and of devices, nodes, which columns are
# used, and Hierarchy, which kernels.class_kernels takes and which has no public name
from xmcjax import (
    _cores,
    _device_memory,
    _hierarchy,
    _links,
    _memory,
    _options,
    _placement,
    _platform,
    _platt,
    _range,
    _sparse,
    _systems,
    _topology,
    _used_columns,
)

# parts of commands that tests make fail, or fuzz, and the page of a report
from xmcjax.cli import _cache, _calibration, _config, _page, _refusals, _runs
from xmcjax.cli import _systems as _cli_systems

# states of joint systems, whose times between two writes are set to none, and the data of a kernel fit
from xmcjax.estimators import _checkpoint, _kernel_training, _multinomial

# parts of one-vs-all with a proof of their own
from xmcjax.lanes import (
    _blocks,
    _certificate,
    _certifier,
    _clipping,
    _device_block,
    _devices,
    _dual_end,
    _fitting,
    _hinge_trainer,
    _interior_end,
    _label_features,
    _label_math,
    _newton_trainer,
    _parts,
    _queue,
    _sparsify,
)

# hashes of changed manifests and how often they are written, parts of shards, names in bytes, the memory of a
# calibration and of an import, the blocks of an index; compiled steps of prediction and what they take
from xmcjax.models import (
    _block_scores,
    _calibrator,
    _device_prediction,
    _device_rows,
    _device_weights,
    _foreign,
    _index,
    _manifest,
    _names,
    _predict,
    _shard,
    _writer,
)

# the declarations of ids.def and calls.def, which are compared with the library
from xmcjax.native import _calls, _ids, _schema

# projections with results that are not public, for which tests take the kernels in CUDA on a CPU
from xmcjax.projections import _knapsack, _topk

# parts of solvers with a proof of their own
from xmcjax.solvers import (
    _admm,
    _admm_blocks,
    _admm_dense,
    _admm_sparse,
    _anderson,
    _certified,
    _cg,
    _entropic,
    _formulations,
    _interior,
    _proximal_step,
    _search,
)
from xmcjax.solvers.multiclass_dual import _row_places, _schedule

# one import, where the linter would have one for each name that is changed
# isort: off
from xmcjax.solvers.multinomial import (
    _certificate as _multinomial_certificate,
    _checkpoint as _multinomial_checkpoint,
    _distributions,
    _judge,
    _kronecker,
    _line_search,
    _preconditioners,
    _run as _multinomial_run,
)
# isort: on

SYSTEMS = _systems.SYSTEMS
CLI_MODULES = _cli_systems.MODULES
option_tables = _options
links = _links
platt = _platt
ranges = _range
sparse = _sparse
topology = _topology
usable_memory = _memory
used_columns = _used_columns.used_columns
blas_threads = _cores.blas_threads
device_memory = _device_memory
devices = _devices
fitting = _fitting
Hierarchy = _hierarchy.Hierarchy
canonical_csr = _sparse.canonical_csr
cli_cache = _cache
cli_calibration = _calibration
cli_config = _config
cli_runs = _runs
refusals = _refusals
joint_checkpoint = _checkpoint
joint_multinomial = _multinomial
kernel_training = _kernel_training
blocks = _blocks
lane_certificate = _certificate
foreign_models = _foreign
model_shards = _shard
model_writer = _writer
label_math = _label_math
lane_certifier = _certifier
dual_end = _dual_end
interior_end = _interior_end
label_features = _label_features
lane_parts = _parts
clipping = _clipping
device_blocks = _device_block
hinge_trainer = _hinge_trainer
newton_trainer = _newton_trainer
queues = _queue
sparsify = _sparsify
calibration = _calibrator
manifest = _manifest
model_index = _index
names = _names
prediction = _predict
block_scores = _block_scores
device_prediction = _device_prediction
device_rows = _device_rows
device_weights = _device_weights
InPlace = _calls.InPlace
ids = _ids
schema = _schema
projection_devices = _knapsack._devices
box_projection = _knapsack.box_projection
topk_projection = _topk.topk_projection
platforms = _platform
Page = _page.Page
solver_paths = _placement.solver_paths
training_path = _placement.training_path
cg = _cg
lowered_step = _proximal_step.lowered
row_places = _row_places
admm = _admm_dense.Method
certified = _certified.certified
certificates = _certified
cut = _schedule.bundles_of
admm_blocks = _admm_blocks
admm_dense = _admm_dense
admm_sparse = _admm_sparse
admm_steps = _admm.steps
Look = _admm.Look
Extrapolation = _anderson.Extrapolation
entropic = _entropic
smoothed = _formulations.smoothed
interior = _interior
search = _search
multinomial_certificate = _multinomial_certificate
multinomial_distributions = _distributions
multinomial_judge = _judge
multinomial_run = _multinomial_run
multinomial_checkpoint = _multinomial_checkpoint
preconditioners = _preconditioners
kronecker = _kronecker
line_search = _line_search
