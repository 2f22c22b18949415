"""Failures of package indexes, mirrors and registries."""

from __future__ import annotations

from known_issues.issue import KnownIssue

NETWORK = (
    KnownIssue(
        name="tls-untrusted",
        fault="host",
        patterns=(
            r"CERTIFICATE_VERIFY_FAILED",
            r"invalid peer certificate: \w+",
            r"SSL certificate problem: (?:unable to get local issuer|self.signed) certificate",
            r"x509: certificate signed by unknown authority",
            r"[Cc]ertificate verification failed",
        ),
        cause="The server's certificate is signed by an authority that is not trusted here, such as that of a "
        "company's proxy.",
        fix="Set SSL_CERT_FILE on the machine that builds to a bundle with that authority; tfimg passes it to "
        "builds as a secret. In a container, mount the bundle and set SSL_CERT_FILE.",
        leads_to=("network", "no-versions", "no-wheel"),
    ),
    KnownIssue(
        name="proxy-login",
        fault="host",
        patterns=(
            r"407 Proxy Authentication Required",
            r"proxy authorization required",
            r"CONNECT tunnel failed, response 407",
            r"Received HTTP code 407 from proxy",
        ),
        cause="The proxy requires a user and a password, and received none or wrong ones.",
        fix="Set HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT on the machine that builds; tfimg passes it to builds "
        "as a secret.",
        leads_to=("network", "no-versions", "no-wheel"),
    ),
    KnownIssue(
        name="network",
        fault="host",
        patterns=(
            r"NewConnectionError.*(?:name resolution|Name or service not known|Network is unreachable|refused)",
            r"cause: dns error",
            r"curl: \((?:6|7)\) .*",
            r"Temporary failure resolving '",
            r"dial tcp: lookup .*",
        ),
        cause="A package index, mirror or registry cannot be reached: its name is not resolved, or it does not accept "
        "connections.",
        fix="Check the network, the proxy (HTTPS_PROXY) and the index of the machine that builds. A build cannot "
        "reach a proxy on 127.0.0.1.",
        leads_to=("no-versions", "no-wheel"),
    ),
    KnownIssue(
        name="rate-limit",
        fault="host",
        patterns=(
            r"toomanyrequests: .*",
            r"You have reached your (?:\w+ )?pull rate limit",
        ),
        cause="The registry refuses further pulls for now. Docker Hub limits the pulls of each account, or of each "
        "address without one, which machines behind one address share.",
        fix="Run `docker login`, or use a mirror (`tfimg build --mirror docker.io=HOST`). Otherwise wait: the "
        "limit is reset after six hours at most.",
        source="docker/hub-feedback#2429, elastic/golang-crossbuild#659",
    ),
    KnownIssue(
        name="registry-denied",
        fault="request",
        patterns=(
            r"denied: requested access to the resource is denied",
            r"pull access denied for \S+",
            r"denied: permission_denied: .*",
            r"insufficient_scope: authorization failed",
        ),
        cause="The registry does not let this account read or write the repository: no account is logged in, the "
        "account lacks the permission, or the repository does not exist. Registries do not distinguish these.",
        fix="Check the image's name, with its host and namespace. Then run `docker login HOST` with an account "
        "that may pull or push there.",
        source="docker/hub-feedback#1222, oracle/docker-images#999",
    ),
    KnownIssue(
        name="hash-mismatch",
        fault="host",
        patterns=(r"Hash mismatch for `.*", r"THESE PACKAGES DO NOT MATCH THE HASHES"),
        cause="The package index or mirror of this machine served a file that differs from the locked one.",
        fix="If it is a mirror, check it. Do not build, and do not lock again, until you know why the file differs.",
    ),
    KnownIssue(
        name="no-versions",
        fault="request",
        patterns=(r"Could not find a version that satisfies the requirement .*\(from versions: (?:none)?\)",),
        cause="pip finds no version of the package: no wheel fits this Python or platform, or the package index lacks "
        "the package or does not respond.",
        fix="For TensorFlow, use a Python that it has wheels for: `tfimg matrix` lists them. For another package, "
        "check its name, and the index that `pip config list` names.",
        source="tensorflow/tensorflow#32762",
        leads_to=("no-wheel",),
    ),
    KnownIssue(
        name="no-wheel",
        fault="request",
        patterns=(
            r"has no wheels with a matching Python (?:ABI|version) tag.*",
            r"No matching distribution found for .*",
            r"is not a supported wheel on this platform",
        ),
        cause="No wheel of the package fits this Python, platform or C library.",
        fix="Use a Python that the release has wheels for: `tfimg resolve --tf VERSION` names the default, `tfimg "
        "matrix` lists all.",
        source="tensorflow/tensorflow#78774",
    ),
    KnownIssue(
        name="image-constraint",
        fault="request",
        patterns=(r"The user requested \(constraint\) \S+==\S+",),
        cause="The image does not let an installation move packages that TensorFlow was built against: "
        "PIP_CONSTRAINT names /opt/tfimg/constraints.txt, which lists them.",
        fix="Request a version that fits: `tfimg build --with REQUIREMENT` says which does, and which image has the "
        "other one. To install it all the same, set PIP_CONSTRAINT= (uv: UV_CONSTRAINT=): TensorFlow may not work "
        "any more.",
        leads_to=("no-wheel", "no-versions"),
    ),
)
