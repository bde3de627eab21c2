"""Hydra's launchers of this project: `hydra/launcher=local` and `hydra/launcher=slurm`.

Hydra finds launchers in the namespace package `hydra_plugins` and nowhere else, which is why they lie outside
`sweeper`; what they do is in `sweeper.cli.launchers`.
"""
