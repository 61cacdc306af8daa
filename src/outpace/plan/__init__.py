"""Planning a deployment: what speculation costs in memory, brings in speed, and at which load.

Everything here is arithmetic on shapes and data sheets; `measured` alone runs a model.
"""
