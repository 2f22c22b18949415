"""Settings of JupyterLab in images; options of the command line come last and win."""

import os

c = get_config()  # noqa: F821 - Jupyter defines it

if "JUPYTERHUB_API_TOKEN" not in os.environ:  # JupyterHub tells its server where to listen
    # Inside a container, loopback cannot be published. `tfimg jupyter` publishes the port on the machine's loopback
    # alone.
    c.ServerApp.ip = "0.0.0.0"  # noqa: S104
    c.ServerApp.port = int(os.environ.get("JUPYTER_PORT", "8888"))
    c.ServerApp.port_retries = 0
    # Kubeflow's path of the notebook. The header that lets pages of the same host frame it is Jupyter Server's default.
    c.ServerApp.base_url = os.environ.get("NB_PREFIX") or "/"
c.ServerApp.open_browser = False
# Deleted files are gone: a trash in the container would only hide them.
c.FileContentsManager.delete_to_trash = False
# TensorBoard, at /tensorboard/ behind the server's token, shows the runs below the work directory.
c.ServerProxy.servers = {
    "tensorboard": {
        "command": [
            "tensorboard",
            "--logdir",
            ".",
            "--host",
            "127.0.0.1",
            "--port",
            "{port}",
            "--path_prefix",
            "{base_url}tensorboard",
        ],
        "absolute_url": True,
        # It imports TensorFlow, which takes a minute on a busy machine.
        "timeout": 180,
        "launcher_entry": {"title": "TensorBoard"},
    },
}
