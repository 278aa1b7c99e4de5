"""Training and prediction on a Dask cluster, whose workers may come, go and die, and meshes of processes.

Dask needs the extra ``cluster``. A one-vs-all model that a cluster trains has the bytes of one that a single
process trains, if the processors have the same instruction set.
"""

from xmcjax.cluster._blocks import blocks_of as blocks_of
from xmcjax.cluster._blocks import makespan as makespan
from xmcjax.cluster._clients import connected as connected
from xmcjax.cluster._clients import local_cluster as local_cluster
from xmcjax.cluster._errors import ClusterError as ClusterError
from xmcjax.cluster._mesh import join_mesh as join_mesh
from xmcjax.cluster._mesh import run_on_mesh as run_on_mesh
from xmcjax.cluster._predict import predict_on_cluster as predict_on_cluster
from xmcjax.cluster._source import FromUrl as FromUrl
from xmcjax.cluster._supply import Source as Source
from xmcjax.cluster._train import Part as Part
from xmcjax.cluster._train import train_on_cluster as train_on_cluster
