"""The command ``xmcjax``. Each command is a module with ``Options``, a frozen dataclass that its
flags are made of, and ``run(options)``; :mod:`xmcjax.cli.main` imports only the one that is run.
"""
