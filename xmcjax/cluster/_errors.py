"""What ends a run on a cluster."""


class ClusterError(OSError):
    """The scheduler or the workers cannot go on; the message says which, and why.

    Example:
        A caller that handles the errors of files handles those of a cluster too:

        >>> try:
        ...     raise ClusterError("expected at least one worker, found none")
        ... except OSError as error:
        ...     print(error)
        expected at least one worker, found none
    """
