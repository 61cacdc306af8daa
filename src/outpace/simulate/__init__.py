"""Requests that are invented and time that is computed: the controllers' own code at any size."""
