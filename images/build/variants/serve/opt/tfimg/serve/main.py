"""`tfimg-serve`: SavedModels in KServe's model server, over REST and gRPC, until SIGTERM."""

import argparse
import gc
import logging
import os
import re
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
GRACE_SECONDS = 30  # for requests that are running when the server is stopped; Kubernetes' default is the same
# Until a connection without a request is closed. A proxy that still sends on it has an error for its client, so that it
# is to close first: AWS' and nginx' do so after 60 s, Google's after 600 s. uvicorn's default is 5 s.
IDLE_SECONDS = 620


def read_arguments(argv):
    """Return the options."""
    parser = argparse.ArgumentParser(prog="tfimg-serve", description=__doc__, allow_abbrev=False)
    parser.add_argument("--models", default="/models", metavar="DIR", help="folders NAME/N with SavedModels (/models)")
    parser.add_argument("--model", action="append", default=[], metavar="NAME=DIR", help="one model; repeatable")
    port = int(os.environ.get("TFIMG_SERVE_PORT", "8080"))
    parser.add_argument("--port", type=int, default=port, help="of REST (TFIMG_SERVE_PORT, else 8080)")
    parser.add_argument("--grpc-port", type=int, default=8081, help="of gRPC (8081)")
    parser.add_argument("--max-body", type=int, default=32, metavar="MIB", help="largest request (32)")
    parser.add_argument("--batch", type=int, default=0, metavar="ROWS", help="join requests to so many rows")
    parser.add_argument("--batch-wait", type=int, default=1000, metavar="US", help="microseconds for that (1000)")
    return parser.parse_args(argv)


def list_folders(arguments):
    """Return folders by name of the model. Raises `ValueError`."""
    pairs = [one.partition("=")[::2] for one in arguments.model]
    folder = Path(arguments.models)
    if not pairs:
        pairs = [(one.name, one) for one in sorted(folder.iterdir()) if one.is_dir() and not one.name.startswith(".")]
    if not pairs:
        raise ValueError(f"{folder} has no folder of a model: mount them as {folder}/NAME/N.")
    for name, _ in pairs:
        if not NAME.fullmatch(name):
            raise ValueError(f"{name[:50]!r} is no name of a model: letters, digits, dots, hyphens and underscores.")
    return dict(pairs)


def main(argv):
    """Load the newest version of each model, and serve them."""
    arguments = read_arguments(argv)
    sys.argv[1:] = []  # KServe reads them when it is imported
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import kserve
    from kserve import model_server
    from limits import Limits
    from models import Repository, find_versions
    from prediction import add_services
    from rest import add_routes
    from signatures import Batching

    repository = Repository(Batching(arguments.batch, arguments.batch_wait) if arguments.batch > 0 else None)
    try:
        models = [find_versions(name, folder, repository) for name, folder in list_folders(arguments).items()]
    except (ValueError, OSError) as error:
        sys.exit(f"tfimg-serve: {error}")

    class Rest(model_server.RESTServer):
        def __init__(self, *values, **options):
            super().__init__(*values, **options)
            self.config.timeout_keep_alive = IDLE_SECONDS  # KServe has an option from 0.18 on

    model_server.RESTServer = Rest

    class Server(kserve.ModelServer):
        def stop(self, sig):
            repository.is_ending = True
            super().stop(sig)

    server = Server(
        http_port=arguments.port, grpc_port=arguments.grpc_port, registered_models=repository,
        enable_latency_logging=False, grace_period=GRACE_SECONDS,
    )  # fmt: skip
    for name in ("kserve", "kserve.trace", "uvicorn.access"):  # a line, or several, for each request
        logging.getLogger(name).setLevel(logging.CRITICAL if name == "kserve" else logging.WARNING)
    settings, app = model_server.args, model_server.app
    settings.grpc_max_receive_message_length = settings.grpc_max_send_message_length = arguments.max_body << 20
    app.add_middleware(Limits, max_body=arguments.max_body << 20)
    add_routes(app, server)
    add_services(repository)
    print("tfimg-serve:", ", ".join(f"{one.name} version {one.number}" for one in models), file=sys.stderr, flush=True)
    # A collection of all that TensorFlow has loaded holds up requests for 0.2 s; what lives to the end needs none.
    gc.freeze()
    server.start(models)


if __name__ == "__main__":
    main(sys.argv[1:])
