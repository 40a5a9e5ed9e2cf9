"""Moving a cluster from counted GPUs to claims: a review of files before they are applied (`drakkar.migration.lint`).

The API server refuses some mistakes, drops others silently and accepts the rest; charts, drivers, exporters and alert
rules have mistakes of their own. What is known about them is in `data/`, what is checked in `rules/`, one small
function per finding. Nothing here talks to a cluster or changes a file.
"""
