"""Exports of models: which image has a way, its run, its report."""
