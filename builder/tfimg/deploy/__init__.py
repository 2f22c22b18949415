"""Deployments of an image: manifests for Compose, Kubernetes and Slurm, for one worker or a cluster."""
