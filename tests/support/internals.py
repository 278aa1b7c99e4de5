"""All that tests know of the inside of the library, and why: nothing else under tests imports it."""

# SYSTEMS is the table of systems that commands, options and stored models share; of the others the
# parts with a proof of their own are tested: options, Platt's fit, the gate of matrices, cores, memory of the
# host and of devices, nodes, and Hierarchy, which kernels.class_kernels takes and which has no public name
from xmcjax import (
    _device_memory,
    _hierarchy,
    _memory,
    _options,
    _platform,
    _platt,
    _sparse,
    _systems,
    _topology,
)

# parts of commands that tests make fail, or fuzz
from xmcjax.cli import _cache, _calibration, _config, _environment, _runs
from xmcjax.cli import _systems as _cli_systems

# states of joint systems, whose times between two writes are set to none
from xmcjax.estimators import _checkpoint, _multinomial

# parts of one-vs-all with a proof of their own
from xmcjax.lanes import (
    _blocks,
    _certificate,
    _clipping,
    _device_block,
    _devices,
    _fitting,
    _hinge_trainer,
    _queue,
    _sparsify,
)

# hashes of changed manifests, names in bytes, the memory of a calibration, the blocks of an index; compiled
# steps
from xmcjax.models import _block_scores, _calibrator, _index, _manifest, _names

# the declarations of ids.def and calls.def, which are compared with the library; the calls of CUDA kernels
from xmcjax.native import _calls, _cuda, _ids, _schema

# parts of solvers with a proof of their own, and what runs of several processes are made to fail in
from xmcjax.solvers import (
    _admm,
    _admm_blocks,
    _admm_dense,
    _admm_sparse,
    _certified,
    _cg,
    _entropic,
    _formulations,
    _peers,
    _search,
)
from xmcjax.solvers.multiclass_dual import _processes, _wire
from xmcjax.solvers.multinomial import _certificate as _multinomial_certificate
from xmcjax.solvers.multinomial import _checkpoint as _multinomial_checkpoint
from xmcjax.solvers.multinomial import _judge, _mesh, _preconditioners

SYSTEMS, CLI_MODULES = _systems.SYSTEMS, _cli_systems.MODULES
option_tables, platt, sparse, topology = _options, _platt, _sparse, _topology
usable_memory, device_memory = _memory, _device_memory
devices, fitting = _devices, _fitting
Hierarchy, canonical_csr = _hierarchy.Hierarchy, _sparse.canonical_csr
cli_cache, cli_calibration, cli_config, cli_runs = _cache, _calibration, _config, _runs
joint_checkpoint, joint_multinomial = _checkpoint, _multinomial
blocks, lane_certificate, clipping, device_blocks = _blocks, _certificate, _clipping, _device_block
hinge_trainer, queues, sparsify = _hinge_trainer, _queue, _sparsify
block_scores = _block_scores
calibration, manifest, model_index, names = _calibrator, _manifest, _index, _names
InPlace, ids, schema, cuda = _calls.InPlace, _ids, _schema, _cuda
platforms, solver_paths = _platform, _environment.solver_paths
training_path = _environment.training_path
cg, peers, wire = _cg, _peers, _wire
admm, certified, cut = _admm_dense.Method, _certified.certified, _processes._cut
admm_blocks, admm_dense, admm_sparse, admm_steps = _admm_blocks, _admm_dense, _admm_sparse, _admm.steps
entropic, smoothed, search = _entropic.entropic, _formulations.smoothed, _search
multinomial_certificate, multinomial_judge, multinomial_mesh = _multinomial_certificate, _judge, _mesh
multinomial_checkpoint, preconditioners = _multinomial_checkpoint, _preconditioners
