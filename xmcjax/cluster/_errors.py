"""What ends a run on a cluster."""


class ClusterError(OSError):
    """The scheduler or the workers cannot go on; the message says which, and why."""
