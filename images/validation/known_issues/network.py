"""Failures of package indexes, mirrors and registries."""

from __future__ import annotations

from known_issues.issue import KnownIssue

# What clients print before the status that a registry answers.
STATUS = (
    r"(?:(?i:unexpected|failed with|received|response) [^\n]{0,40}?(?i:status)|status code from registry|"
    r"error parsing HTTP|"
    r"HTTP status|\bStatus(?= \d{3} trying to pull))[^\n]{0,300}?\b"
)

NETWORK = (
    KnownIssue(
        name="tls-untrusted",
        fault="host",
        patterns=(
            r"CERTIFICATE_VERIFY_FAILED",
            r"invalid peer certificate: \w",
            r"SSL certificate problem: (?:unable to get local issuer|self.signed) certificate",
            r"x509: (?!certificate (?:has expired|is valid for|relies)|cannot validate|certificate is not valid for)\w",
            r"[Cc]ertificate verification failed|cannot verify \S{1,100} certificate|ssl-verification-failed",
        ),
        cause="The server's certificate is signed by an authority that is not trusted here, such as that of a "
        "company's proxy.",
        fix="Set SSL_CERT_FILE on the machine that builds to a bundle with that authority; tfimg passes it to builds "
        "as a secret. In a container, mount the bundle and set SSL_CERT_FILE.",
        leads_to=("network", "no-versions", "no-wheel"),
    ),
    KnownIssue(
        name="proxy-login",
        fault="host",
        patterns=(
            r"Proxy Authentication Required|Tunnel connection failed: 407",
            r"proxy authorization required",
            r"CONNECT tunnel failed, response 407",
            r"Received HTTP code 407 from proxy",
        ),
        cause="The proxy requires a user and a password, and received none or wrong ones.",
        fix="Set HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT on the machine that builds; tfimg passes it to builds as "
        "a secret.",
        leads_to=("network", "no-versions", "no-wheel"),
    ),
    KnownIssue(
        name="network",
        fault="host",
        patterns=(
            r"failed size validation: \d{1,15} != \d",
            r"(?:Get|Head|Put|Post|Patch) \"https?://[^\"\n]{1,400}\": (?:(?:unexpected )?EOF|context deadline)|"
            r"stream error: stream ID \d|lookup \S{1,200}(?: on \S{1,60})?: (?:no such host|server misbehaving)",
            r"Max retries exceeded with url|Temporary failure in name resolution|socket\.gaierror|"
            r"requests\.exceptions\.Conn",
            r"Connection broken: |ConnectionResetError\(104|RemoteDisconnected\(|UNEXPECTED_EOF_WHILE_READING|"
            r"SSL_ERROR_SYSCALL",
            r"error: (?:connection-failed|incomplete-download|proxy-connection-failed)|[Nn]etwork is unreachable",
            r"[Ww]e couldn't connect to 'https?://",
            r"NewConnectionError[^\n]{0,300}(?:name resolution|Name or service not known|Network is unreachable|"
            r"refused)",
            r"cause: dns error",
            r"curl: \((?:6|7|28|35|56)\) ",
            r"Temporary failure resolving '",
            r"Could not resolve '[\w.-]{1,200}'",
            r"dial tcp: lookup ",
            r"dial tcp [\d.:\[\]a-f]{1,60}: (?:connect: |i/o timeout|connection refused)",
            r"proxyconnect tcp: ",
            r"net/http: (?:TLS handshake timeout|request canceled while waiting for connection)",
            r"Client\.Timeout (?:exceeded|or context cancellation) while",
            r"(?:ReadTimeoutError|ConnectTimeoutError|ConnectTimeout|ReadTimeout): ",
            r"\[Errno -[235]\]|URL fetch failure on ",
            r"Could not resolve host: |Failed to connect to \S{1,200} port \d{1,5}",
            r"(?:read|write) tcp [^\n]{1,100}: (?:read: |write: )?(?:connection reset by peer|broken pipe|i/o timeout)",
        ),
        cause="A server cannot be reached, such as a package index, mirror or registry: its name is not resolved, it "
        "does not accept connections, or it ended one.",
        fix="Check the network, the proxy (HTTPS_PROXY) and the index of the machine that builds. A build cannot "
        "reach a proxy on 127.0.0.1.",
        leads_to=("no-versions", "no-wheel"),
    ),
    KnownIssue(
        name="tls-invalid",
        fault="host",
        patterns=(
            r"x509: certificate (?:has expired or is not yet valid|is valid for [^\n]{1,200}, not |"
            r"relies on legacy Common Name)",
            r"x509: cannot validate certificate for",
            r"SSL certificate problem: certificate (?:has expired|is not yet valid)",
            r"certificate verify failed: (?:certificate has expired|certificate is not yet valid|Hostname mismatch)",
            r"Release file for \S{1,200} is not (?:yet valid|valid yet)",
        ),
        cause="The server's certificate does not hold: it has expired, is for another name, or the machine's clock is "
        "wrong.",
        fix="Check `date` on the machine (virtual machines and WSL fall behind after sleep), and the name in the "
        "address; otherwise the server's operator has to renew its certificate.",
        source="docker/for-win#4526",
        leads_to=("tls-untrusted", "network", "no-versions", "no-wheel"),
    ),
    KnownIssue(
        name="plain-http-registry",
        fault="request",
        patterns=(
            r"server gave HTTP response to HTTPS client",
            r"first record does not look like a TLS handshake",
            r"SSL: WRONG_VERSION_NUMBER|ssl3_get_record:wrong version number|packet length too long",
        ),
        cause="The registry or proxy speaks HTTP without TLS, and the client expects TLS.",
        fix="For tfimg, use `--plain-http`. For Docker, add the registry to `insecure-registries` in "
        "/etc/docker/daemon.json and restart it; for containerd, a hosts.toml with http://; better, give it a "
        "certificate. A proxy's address in HTTPS_PROXY mostly begins with http://.",
        source="moby/moby#8887",
        leads_to=("network",),
    ),
    KnownIssue(
        name="rate-limit",
        fault="host",
        patterns=(
            r"toomanyrequests: ",
            r"(?:unexpected status|registry)[^\n]{0,200}429 Too Many Requests",
            r"You have reached your (?:\w{1,80} )?pull rate limit",
        ),
        cause="The registry refuses further pulls for now. Docker Hub limits the pulls of each account, or of each "
        "address without one, which machines behind one address share.",
        fix="Run `docker login`, or use a mirror (`tfimg build --mirror docker.io=HOST`). Otherwise wait: the limit "
        "is reset after six hours at most.",
        source="docker/hub-feedback#2429, elastic/golang-crossbuild#659",
        leads_to=("registry-denied",),
    ),
    KnownIssue(
        name="registry-login",
        fault="request",
        patterns=(
            r"(?:UnrecognizedClient|ExpiredToken|InvalidClientTokenId|ExpiredTokenException)\w{0,12}\) when calling",
            r"(?i:authorization token has expired)",
            r"no basic auth credentials",
            r"(?:^|: |\")unauthorized: (?![^\n]{0,60}(?:unauthorized to access|project \S{1,100} not found|"
            r"access to the requested resource))",
            r"denied: HTTP Basic: Access denied",
            r"from daemon: unauthorized[ \t]{0,40}$",
            r"Unauthenticated request\. Unauthenticated requests do not have permission",
            STATUS + r"401\b",
            r"unknown: Authentication is required",
            r"Unable to retrieve some image pull secrets|Cannot perform an interactive login from a non TTY",
        ),
        cause="The registry wants credentials, and received none, wrong ones or expired ones: a token of Amazon's ECR "
        "is valid for 12 hours, one of Google's Artifact Registry for one.",
        fix="Log in again: `docker login HOST`; ECR: `aws ecr get-login-password | docker login --username AWS "
        "--password-stdin HOST`; Artifact Registry: `gcloud auth configure-docker HOST`; Azure: `az acr login`. A "
        "cluster needs the same as `imagePullSecrets`. As root (`sudo docker`), another file of credentials is read.",
        source="aws/containers-roadmap#862, moby/buildkit#3776",
        leads_to=("registry-denied",),
    ),
    KnownIssue(
        name="registry-no-repository",
        fault="request",
        patterns=(
            r"name unknown: ",
            r"repository name not known to registry",
            r"RepositoryNotFoundException|does not exist in the registry with id",
            r"(?:unauthorized|denied|not_found|NOT_FOUND|rror)[^\n]{0,60}project \S{1,100} not found\b",
            r"Repository \"[^\"\n]{1,100}\" not found",
            r"Artifact Registry API has not been used in project",
        ),
        cause="The registry has no repository (or project) of this name, and does not create it at a push.",
        fix="Create it: ECR `aws ecr create-repository --repository-name NAME`, Artifact Registry `gcloud artifacts "
        "repositories create NAME --repository-format docker --location PLACE` (after `gcloud services enable "
        "artifactregistry.googleapis.com`), Harbor and Quay in their pages. Check region, account and spelling.",
        source="docker/build-push-action#634",
        leads_to=("image-not-found",),
    ),
    KnownIssue(
        name="tag-immutable",
        fault="request",
        patterns=(
            r"cannot be overwritten because the (?:repository|tag) is immutable",
            r"configured as immutable",
            r"enabled tag immutability",
            r"\btag\b[^\n]{0,80} is immutable",
            r"Repository does not allow updating assets",
            r"operation is disallowed on this registry, repository or image",
        ),
        cause="The repository's tags are immutable: this tag exists, and the registry does not let it move.",
        fix="Push another tag; or, for tags that move (such as 2.15), exclude them from the rule or make the "
        "repository mutable: `aws ecr put-image-tag-mutability --repository-name NAME --image-tag-mutability MUTABLE`.",
        source="aws/containers-roadmap#878",
        leads_to=("registry-denied",),
    ),
    KnownIssue(
        name="registry-body-limit",
        fault="host",
        patterns=(
            r"413 (?:Request Entity Too Large|Payload Too Large|Content Too Large)",
            STATUS + r"413\b",
            r"client intended to send too large body",
            r"http: request body too large",
        ),
        cause="A proxy before the registry refuses uploads of this size; layers of GPU images have up to 2 GB.",
        fix="In nginx set `client_max_body_size 0;`, at an ingress the annotation "
        '`nginx.ingress.kubernetes.io/proxy-body-size: "0"`. Cloudflare\'s limit is 100 MB on its free plan: push '
        "past it.",
        source="goharbor/harbor#10621",
    ),
    KnownIssue(
        name="registry-unavailable",
        fault="host",
        patterns=(
            STATUS + r"50[0234]\b",
            r"failed open: unexpected status code \S{1,300}: (?:400|404|416)\b",
            r"failed to copy: (?:io: read/write on closed pipe|cannot reuse body)",
        ),
        cause="The registry's server, or a proxy before it, fails (status 500 to 504), or a mirror does not have what "
        "it lists.",
        fix="Try again later, and look at the registry's status page or its own log: its disk may be full, or its "
        "proxy may give up too early.",
        source="distribution/distribution#2225",
    ),
    KnownIssue(
        name="registry-format",
        fault="request",
        patterns=(
            r"failed commit on ref [^\n]{1,200}unexpected status[^\n]{0,200}: (?:400|404|415) ",
            r"\bmanifest invalid\b|\bblob (?:upload )?(?:unknown|invalid)\b|provided digest did not match|"
            r"[Mm]anifest media ?type [^\n]{1,100} not supported",
            r"Invalid parameter at 'ImageManifest'",
        ),
        cause="The registry does not accept the form of the image: attestations, OCI's index or zstd layers, which "
        "older releases of Harbor, Artifactory, GitLab and others do not know.",
        fix="Update the registry. Otherwise push Docker's older form: `tfimg build --compression gzip`; with buildx, "
        "`--provenance=false --sbom=false`.",
        source="docker/buildx#196, docker/buildx#1653",
    ),
    KnownIssue(
        name="build-cache",
        fault="host",
        patterns=(r"failed to reserve cache|This legacy service is shutting down",),
        cause="GitHub's cache took no layer of the build: the service was busy or full, or this release of BuildKit "
        "uses the former service. The image itself may be complete.",
        fix="Add `ignore-error=true` to `cache-to: type=gha`, which keeps the build, and update setup-buildx-action "
        "and build-push-action.",
        source="docker/build-push-action#1571",
    ),
    KnownIssue(
        name="registry-quota",
        fault="host",
        patterns=(
            r"will exceed the configured upper limit of",
            r"Quota exceeded when processing the request",
            r"The system is in read only mode\. Any modification is prohibited",
            r"storage quota (?:has been )?exceeded|quota has been exceeded",
        ),
        cause="The registry takes no more: the quota of the project is used up, or it is in read-only mode.",
        fix="Remove old images there and run its garbage collection, or ask its operator for a higher quota.",
        source="goharbor/harbor#14709",
        leads_to=("registry-denied",),
    ),
    KnownIssue(
        name="registry-denied",
        fault="request",
        patterns=(
            r"denied: requested access to the resource is denied",
            r"pull access denied",
            r"insufficient_scope: authorization failed",
            r"denied: Permission ['\"]artifactregistry\.\S{1,100} denied",
            r"unauthorized to access repository: ",
            r"unauthorized: access to the requested resource is not authorized",
            r"(?:^|[:\"] )denied: (?!HTTP Basic|Permission|requested|project|Artifact|storage|Cannot update tag|"
            r"The operation)\w",
            r"is not authorized to perform: ecr",
            STATUS + r"403\b",
            r"requested access to the resource is denied",
        ),
        cause="The registry does not let this account read or write the repository: no account is logged in, the "
        "account lacks the permission, or the repository does not exist. Registries do not distinguish these, and "
        "some answer 403 to a login that has expired.",
        fix="Check the image's name, with its host and namespace, and that the repository exists. Then run `docker "
        "login HOST` with an account that may pull or push there; a token of a CI job needs the permission to write "
        "packages.",
        source="docker/hub-feedback#1222, oracle/docker-images#999",
        leads_to=("image-not-found",),
    ),
    KnownIssue(
        name="registry-policy",
        fault="request",
        patterns=(r"cannot be pulled due to configured policy|[Tt]he image is not signed|PROJECTPOLICYVIOLATION",),
        cause="The registry does not serve the image: its project demands a signature, or no known vulnerabilities "
        "above a level.",
        fix="Build the image again on a newer base (`tfimg build --renew-base`) and sign it, or ask for an exception "
        "in the project's settings (Harbor: Configuration, Deployment security).",
        source="goharbor/harbor#13641",
        leads_to=("registry-denied", "registry-login"),
    ),
    KnownIssue(
        name="index-login",
        fault="request",
        patterns=(
            r"(?:WARNING|ERROR): (?:HTTP error )?40[13] (?:Client )?(?:Error|while)",
            r"Missing credentials for https?://|HTTP status client error \(40[13] ",
        ),
        cause="The package index does not let this account read: credentials are missing, wrong or expired, or lack "
        "the permission.",
        fix="Write the index' user and token into ~/.netrc of the machine that builds, which tfimg passes to builds "
        "as a secret, or into the index' address of pip or uv; a token of Azure Artifacts, CodeArtifact or Artifact "
        "Registry is valid for hours.",
        source="pypa/pip#6018",
        leads_to=("no-versions", "no-wheel", "pip-conflict", "network"),
    ),
    KnownIssue(
        name="hash-mismatch",
        fault="host",
        patterns=(r"Hash mismatch for `", r"THESE PACKAGES DO NOT MATCH THE HASHES"),
        cause="The package index or mirror of this machine served a file that differs from the locked one.",
        fix="If it is a mirror, check it. Do not build, and do not lock again, until you know why the file differs.",
    ),
    KnownIssue(
        name="no-versions",
        fault="request",
        patterns=(
            r"No local packages or working download links found for|"
            r"Could not find suitable distribution for Requirement",
            r"Could not find a version that satisfies the requirement [^\n]{1,300}\(from versions: (?:none)?\)",
        ),
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
            r"requires a different Python: |current Python version \(\S{1,20}\) does not satisfy|"
            r"Packages require a different Python",
            r"has no (?:usable )?wheels|only has wheels for the following|have a source distribution or wheel for",
            r"No matching distribution found for |Unable to find installation candidates for",
            r"is not a supported wheel on this platform",
        ),
        cause="No wheel of the package fits this Python, platform or C library.",
        fix="Use a Python that the release has wheels for: `tfimg resolve --tf VERSION` names the default, `tfimg "
        "matrix` lists all.",
        source="tensorflow/tensorflow#78774",
        leads_to=("pip-conflict",),
    ),
    KnownIssue(
        name="image-constraint",
        fault="request",
        patterns=(r"The user requested \(constraint\) \S{1,100}==",),
        cause="The image does not let an installation move packages that TensorFlow was built against: PIP_CONSTRAINT "
        "names /opt/tfimg/constraints.txt, which lists them.",
        fix="Request a version that fits: `tfimg build --with REQUIREMENT` says which does, and which image has the "
        "other one. To install it all the same, set PIP_CONSTRAINT= (uv: UV_CONSTRAINT=): TensorFlow may not work any "
        "more.",
        leads_to=("no-wheel", "no-versions", "pip-conflict"),
    ),
)
